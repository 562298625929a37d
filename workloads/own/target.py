"""Finds the user's target by its name, and puts errors of the user's code in one line."""

import atexit
import difflib
import gc
import importlib
import io
import operator
import os
import random
import site
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from workbench.contract import DEVICE_KINDS, WorkloadError
from workbench.worker.code import Code
from workbench.worker.failures import MEMORY_HINT, first_line, is_fatal, is_out_of_memory

START_S = 5e-3  # a first call may take so long for other reasons
# Messages of torch and CuPy for code that asks for CUDA in a process without it.
NO_CUDA_MARKS = (
    "not compiled with CUDA", "No CUDA GPUs", "no NVIDIA driver", "CUDA-capable",
    "deserialize object on a CUDA device", "cudaErrorNoDevice", "cudaErrorInsufficientDriver",
    "accelerator device when none", "'_cuda_setDevice'",
)  # fmt: skip
# Beginnings of file names: of ours, and of all that are not the user's.
_OURS = ("<", str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "workbench"))
_OTHERS = (
    *_OURS,
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    site.getusersitepackages(),
)
_PACKAGES = {"site-packages", "dist-packages"}  # also those outside a virtual environment
REMEDIES = (  # by a part of the message
    (
        "backward through the graph a second time",
        "it keeps a state between steps: let its forward detach() or renew that",
    ),
    ("is not attached to a `Trainer`", "put lines that need one under `if self._trainer:`"),
    ("EOFError: EOF when reading", "its standard input is empty: let it take arguments"),
    ("does not support sparse gradients", "define an optimizer that does, such as SGD or Adagrad"),
)
GUARD = "put what only a script does under `if __name__ == '__main__':`"
HIDING = tuple(kind.hidden_by for kind in DEVICE_KINDS.values() if kind.hidden_by)
_ignored: set[str] = set()  # variables of HIDING that the user's code set in vain


class _Blind(os._Environ[str]):
    """The environment of a worker that must see no GPU: the variables of HIDING stay empty."""

    def __setitem__(self, key: str, value: str) -> None:
        if key in HIDING:
            _ignored.add(key)
        super().__setitem__(key, "" if key in HIDING else value)

    def __delitem__(self, key: str) -> None:
        if key in HIDING:
            self[key] = ""
        else:
            super().__delitem__(key)

    def clear(self) -> None:  # the inherited one would wait for the last variable to go
        for key in list(self):
            del self[key]


def keep_hidden() -> None:
    """Keep GPUs hidden if they are now, so that candidates of the CPU cannot compute on one."""
    if any(os.environ.get(name) == "" for name in HIDING):
        os.environ.__class__ = _Blind


def resolve(code: Code) -> Any:
    """The object that `package.module:name` names; dots in `name` lead to attributes.

    NumPy's generator is seeded before the import, as torch's is: a module may draw from it.

    The user's folder comes first on `sys.path` from then on, so our own imports and the backend's
    have to precede this.  Raises WorkloadError: "bad_target" for a wrong name, "user_code" where
    the import fails.
    """
    keep_hidden()
    place, _, name = code.target.partition(":")
    with suppress(ImportError):
        importlib.import_module("numpy")
    seed_loaded(code.seed)
    module = _module(place, code.directory)
    with user_errors(code.name):
        try:
            return operator.attrgetter(name)(module)
        except AttributeError:
            near = difflib.get_close_matches(name, dir(module), cutoff=0.8)
            hint = f"did you mean {' or '.join(near)}?" if near else None
            raise WorkloadError(f"{place} has no {name}", code="bad_target", hint=hint) from None


def _module(name: str, folder: str) -> Any:
    top = name.partition(".")[0]
    users, loaded = PathFinder.find_spec(top, [folder]), sys.modules.get(top)
    if loaded and users and users.origin and users.origin != getattr(loaded, "__file__", None):
        text = f"{top} is the name of a module that workers use"
        raise WorkloadError(text, code="bad_target", hint="rename the file or package")
    search_first(folder)
    sys.argv[:] = [name]  # a module may read it at import
    with user_errors(f"import of {name}"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not f"{name}.".startswith(f"{error.name}."):
                raise
            text = f"there is no module {error.name} in {folder} or among the packages"
            hint = "--python names the environment that has it"
            if PathFinder.find_spec(top, [str(Path(folder, "src"))]) is not None:
                hint = f"{top} is in src: install it with `pip install -e .`, or start in src"
            raise WorkloadError(text, code="bad_target", hint=hint) from None
        except SystemExit as end:
            text = f"import of {name}: {in_one_line(end)}"
            raise WorkloadError(text, code="user_code", hint=GUARD) from end


def search_first(folder: str) -> None:
    """Search the user's folder for modules before all others."""
    flush_at_exit()
    sys.path[:] = [folder, *(entry for entry in sys.path if entry != folder)]


@cache
def flush_at_exit() -> None:
    """Flush files that the user's code leaves open at exit, since workers end by os._exit."""
    atexit.register(flush_files)


def flush_files() -> None:
    gc.unfreeze()  # frozen objects are not listed
    for each in gc.get_objects():
        if issubclass(type(each), (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)):
            with suppress(Exception):  # closed, or its pipe is
                each.flush()


@contextmanager
def user_errors(what: str, hint: str | None = None) -> Iterator[None]:
    """Raise an error of the user's code, or its SystemExit, as a WorkloadError "user_code" that
    names `what` and the user's innermost line, with `hint` as its remedy.

    Lack of memory is "no_memory".  Errors that a worker explains itself are not changed: a
    WorkloadError, a missing package, a GPU that is lost to the process.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        is_missing = isinstance(error, ModuleNotFoundError) and error.name
        if isinstance(error, WorkloadError) or is_missing or is_fatal(error):
            raise
        if is_out_of_memory(error):
            raise WorkloadError(first_line(error), code="no_memory", hint=MEMORY_HINT) from error
        text = f"{what}: {in_one_line(error)}"
        remedies = (remedy for mark, remedy in REMEDIES if mark in text)
        raise WorkloadError(text, code="user_code", hint=hint or next(remedies, None)) from error


@contextmanager
def examining(code: Code, notes: list[str], variables: Iterable[str], hint: str) -> Iterator[None]:
    """Note which of these variables, or of those that hide GPUs, the block sets too late.  A
    message about missing CUDA, without a hint, becomes a WorkloadError "needs_gpu" with `hint`."""
    before = {name: os.environ.get(name) for name in (*variables, *HIDING)}
    try:
        yield
    except WorkloadError as error:
        if error.hint or not any(mark in str(error) for mark in NO_CUDA_MARKS):
            raise
        text = f"{code.name} cannot run on the CPU: {str(error).removeprefix(f'{code.name}: ')}"
        raise WorkloadError(text, code="needs_gpu", hint=hint) from error
    sets = [n for n, value in before.items() if os.environ.get(n) != value or n in _ignored]
    notes += [f"it sets {name}, perhaps too late to have an effect" for name in sets]


def origin(error: BaseException) -> BaseException:
    """The root cause of `error`; a chain of causes may be a cycle."""
    chain = [error]
    while (before := chain[-1].__cause__) is not None and before not in chain:
        chain.append(before)
    return chain[-1]


def in_one_line(error: BaseException) -> str:
    """`KeyError: 'lr' (train.py:12)`: the error, its root cause if that says more, and the user's
    line."""
    text, caused = first_line(error), first_line(origin(error))
    if (caused.partition(": ")[2] or caused) not in text:
        text = f"{text.rstrip(':')}; the cause is {caused}"
    return text + _users_line(error)


def _users_line(error: BaseException) -> str:
    """` (train.py:12)`: the innermost line of the user's code, else ` (peft/lora.py:7)` of a
    package other than torch, else empty."""
    chain = (error, origin(error))
    frames = [frame for each in chain for frame in traceback.extract_tb(each.__traceback__)]
    users = [frame for frame in frames if is_users(frame.filename)]
    found = users or [frame for frame in frames if _is_packages(frame.filename)]
    if not found:
        return ""
    file = Path(found[-1].filename)
    name = file.name if users else f"{file.parent.name}/{file.name}"
    return f" ({name}:{found[-1].lineno})"


def kept_result(first_s: float, later_s: float, factor: float) -> list[str]:
    """A note if a first call takes over `factor` times as long as a later one with equal inputs, as
    if the code compiled or cached its result; else empty.  Within START_S it may just be slow."""
    if first_s <= max(START_S, factor * later_s):
        return []
    times = f"a first call takes {first_s / later_s:.0f}x as long as a later one with equal inputs"
    return [f"{times}: it compiles, or it caches results and only reading them is timed"]


def is_users(file: str) -> bool:
    """Whether a file is neither of Python, an installed package, torch.compile nor ours."""
    generated = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "<")
    return not (file.startswith((*_OTHERS, generated)) or _PACKAGES & set(Path(file).parts))


def _is_packages(file: str) -> bool:
    """Whether a file is that of an installed package other than torch and ours."""
    parts = set(Path(file).parts)
    return bool(_PACKAGES & parts) and "torch" not in parts and not file.startswith(_OURS)


def unusable(message: str, hint: str | None = None) -> WorkloadError:
    """An error about input of the user's that cannot be timed or compared."""
    return WorkloadError(message, code="bad_input", hint=hint)


def seed_loaded(seed: int) -> None:
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(seed)
