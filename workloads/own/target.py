"""The user's target by its name, and errors of the user's code in one line."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from workbench.contract import WorkloadError
from workbench.worker.code import Code
from workbench.worker.failures import MEMORY_HINT, first_line, is_fatal, is_out_of_memory

OURS = ("workbench", "workloads", "screens")
# Files below these folders are not the user's.
_OTHERS = (
    Path(__file__).resolve().parents[1],
    Path(__file__).resolve().parents[2] / "workbench",
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)


def resolve(code: Code) -> Any:
    """The object that `package.module:name` or `path/to/file.py:name` names; dots in `name` lead
    to attributes.

    The user's folder comes first on `sys.path` from then on, so our own imports and the backend's
    have to precede this.  Raises WorkloadError: "bad_target" for a wrong name, "user_code" where
    the import fails.
    """
    place, _, name = code.target.rpartition(":")
    if not place or not name:
        raise _bad(f"{code.target!r} names no object", "name it as package.module:name")
    found = _module(place, code)
    for part in name.split("."):
        with user_errors(code.name):
            try:
                found = getattr(found, part)
            except AttributeError:
                raise _bad(f"{place} has no {name}", _near(part, dir(found))) from None
    return found


def _module(place: str, code: Code) -> Any:
    """The module of that name, or in that file."""
    folder, name = Path(code.directory), place
    if place.endswith(".py"):
        folder, name = (folder / place).parent, Path(place).stem
        if not (folder / f"{name}.py").is_file():
            raise _bad(f"there is no file {place}", _near(name, _modules_in(folder)))
    _refuse_taken(name.partition(".")[0], folder)
    first = list(dict.fromkeys([str(folder), code.directory]))
    sys.path[:] = [*first, *(entry for entry in sys.path if entry not in first)]
    sys.argv[:] = [place, *code.arguments]  # a module may read them at import
    importlib.invalidate_caches()
    with user_errors(f"import of {place}"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not error.name or not f"{name}.".startswith(f"{error.name}."):
                raise
            text = f"there is no module {error.name} in {folder} or among the packages"
            parent = folder.joinpath(*error.name.split(".")[:-1])
            near = _near(error.name.rpartition(".")[2], _modules_in(parent))
            raise _bad(text, near or "--python names the environment that has it") from None


def _refuse_taken(top: str, folder: Path) -> None:
    """Raise WorkloadError for a file of the user that Python would pass over for a module that is
    loaded already, ours above all."""
    own = [file for file in (folder / f"{top}.py", folder / top / "__init__.py") if file.is_file()]
    loaded = getattr(sys.modules.get(top), "__file__", None)
    is_taken = top in sys.modules and not any(loaded and file.samefile(loaded) for file in own)
    if top in OURS or (own and is_taken):
        raise _bad(f"{top} is the name of a module that workers use", "rename the file or package")


def _modules_in(folder: Path) -> list[str]:
    return [found.name for found in pkgutil.iter_modules([str(folder)])]


def _near(name: str, names: Iterable[str]) -> str | None:
    near = difflib.get_close_matches(name, [n for n in names if not n.startswith("_")])
    return f"did you mean {' or '.join(near)}?" if near else None


def _bad(text: str, hint: str | None) -> WorkloadError:
    return WorkloadError(text, code="bad_target", hint=hint)


@contextmanager
def user_errors(what: str) -> Iterator[None]:
    """Raise an error of the user's code, or its SystemExit, as `user_error` has it."""
    try:
        yield
    except (Exception, SystemExit) as error:
        found = user_error(what, error)
        if found is error:
            raise
        raise found from error


def user_error(what: str, error: BaseException) -> BaseException:
    """`error` as a WorkloadError "user_code" that names `what` and the user's innermost line.

    Lack of memory is "no_memory".  Errors for which workers have words come back as they are: a
    WorkloadError, a missing package, a GPU that is lost to the process.
    """
    if isinstance(error, WorkloadError) or is_fatal(error):
        return error
    if isinstance(error, ModuleNotFoundError) and error.name:
        return error
    if is_out_of_memory(error):
        return WorkloadError(first_line(error), code="no_memory", hint=MEMORY_HINT)
    return WorkloadError(f"{what}: {first_line(error)}{_line(error)}", code="user_code")


def _line(error: BaseException) -> str:
    """` (train.py:12)`: the innermost line of the user's; empty where there is none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame)]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


def _is_users(frame: traceback.FrameSummary) -> bool:
    file = Path(frame.filename)
    return file.is_absolute() and not any(file.is_relative_to(folder) for folder in _OTHERS)
