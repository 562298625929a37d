"""Hands the module that a script called, its inputs and its training to other processes."""

import copy
import copyreg
import importlib
import itertools
import json
import pickle
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from workbench.contract import WorkloadError
from workbench.worker.code import Code
from workbench.worker.failures import first_line
from workbench.worker.libraries import torch

from .calls import Called, Run
from .feeding import feed_of
from .target import is_users
from .tree import Example, uncompiled, without_mixed_forward, without_parallel

PICKLE, PATHS, DATA = "module.pt", "paths.json", "data.pickle"  # files in `Code.folder`
MOST_DATA = 1 << 30  # bytes


def given(chosen: Called, ran: Run, code: Code) -> tuple[Any, Any, SimpleNamespace]:
    """The module, its inputs and the parts of its training; the last input is that of a followed
    loss."""
    inputs, parts = chosen.example, SimpleNamespace()
    assert inputs is not None  # others are not chosen
    if chosen.joined is None:
        module = uncompiled(without_mixed_forward(chosen.module))
    else:
        module, parts.calls = chosen.joined, chosen.joined.calls
        for part in module.inner:
            uncompiled(without_mixed_forward(part))
    example = inputs
    if code.train:
        if chosen.loss is not None and not chosen.loss.is_returned:
            parts.loss = chosen.loss
            example = Example((*example.args, chosen.given), example.kwargs)
        for fed in reversed(chosen.fed):
            with suppress(Exception):  # its inputs are not this batch, or one of a special loader
                parts.feed, parts.loader = feed_of(fed.batch, inputs, example), fed.make()
        if optimizers := ran.optimizers_of(chosen):
            own, _ = optimizers[0]
            parts.optimizer = made = copy.copy(own)  # without weights and state
            made.state, made.param_groups = {}, [{"params": []} for _ in own.param_groups]
    return module, example, parts


def hand_over(chosen: Called, ran: Run, code: Code) -> str | None:
    """Write what is `given`, with the most frequent inputs, to `code.folder` for other processes.

    Its weights are those at the end of the script.  Classes of `__main__` travel by value, others
    by name.  Returns why it cannot be handed over, or None.
    """
    folder, is_parametrized = Path(code.folder), torch.nn.utils.parametrize.is_parametrized
    homes = [home for home in _homes(chosen.raced) if home not in (*sys.path, *ran.paths)]
    (folder / PATHS).write_text(json.dumps([*ran.paths, *homes]))
    try:
        handed, pickler = given(chosen, ran, code), cloudpickle(code)
        for kind in {type(each) for each in filter(is_parametrized, chosen.raced.modules())}:
            del kind.__getstate__  # torch's refuses, as others cannot pickle such a class
        loader = vars(handed[2]).pop("loader", None)
        try:
            with (folder / DATA).open("wb") as file:
                pickler.dump(loader, _Limited(file))
        except Exception as error:  # it holds what cannot be pickled
            (folder / DATA).unlink()
            handed[2].misfit = f"its DataLoader cannot be handed over ({first_line(error)})"
        torch.save(handed, folder / PICKLE, pickle_module=pickler, pickle_protocol=5)
    except Exception as error:
        (folder / PICKLE).unlink(missing_ok=True)
        return f"{chosen.name} cannot be handed to another process: {first_line(error)}"
    return None


class _Limited:
    """A file that takes MOST_DATA bytes, since each worker reads it."""

    def __init__(self, file: Any) -> None:
        self._file, self._left = file, MOST_DATA

    def write(self, data: Any) -> None:
        self._left -= memoryview(data).nbytes
        if self._left < 0:
            raise OSError("its data are over 1 GiB")
        self._file.write(data)


def _homes(module: Any) -> set[str]:
    """The folders of the user's packages that define its parts, even if no longer on `sys.path`."""
    names = {type(part).__module__.partition(".")[0] for part in module.modules()}
    found = map(sys.modules.get, names)
    places = (getattr(x, "__path__", None) or [getattr(x, "__file__", None) or "<"] for x in found)
    return {str(Path(each).parent) for each in itertools.chain(*places) if is_users(each)}


def received(code: Code, dtype: str | None = None) -> tuple[Any, Example, SimpleNamespace]:
    """Read the files of `hand_over`, with all tensors on the CPU.  New tensors then get the
    default type of the script, since its module may make some.

    WorkloadError `user_code` if they cannot be loaded here.
    """
    if dtype is not None:
        torch.set_default_dtype(getattr(torch, dtype))
    folder, path = Path(code.folder), list(sys.path)
    added = [entry for entry in json.loads((folder / PATHS).read_text()) if entry not in path]
    sys.path[:0] = added
    try:
        cloudpickle(code)
        found = torch.load(folder / PICKLE, map_location="cpu", weights_only=False)
        if (folder / DATA).exists():
            found[2].loader = pickle.loads((folder / DATA).read_bytes())  # noqa: S301 - as above
    except Exception as error:
        message = f"the script's module cannot be loaded in another process: {first_line(error)}"
        raise WorkloadError(message, code="user_code") from error
    finally:
        sys.path[:] = [*path, *added]
    module, example, parts = found
    for part in list(module.modules()):
        for name, child in part.named_children():
            if child is not without_parallel(child):
                setattr(part, name, without_parallel(child))
    return module, example, parts


def _scripted(function: Any) -> Any:
    """Reduce a function of torch.jit.script: another process compiles its source again."""
    source = function._torchdynamo_inline
    if torch.jit.script(source).qualified_name != function.qualified_name:
        raise pickle.PicklingError(f"torch.jit.trace made {function.name}")
    return torch.jit.script, (source,)


def cloudpickle(code: Code) -> Any:
    """The interpreter's own cloudpickle, or else ours, which is pure Python."""
    copyreg.pickle(torch.jit.ScriptFunction, _scripted)
    try:
        return importlib.import_module("cloudpickle")
    except ImportError:
        from workbench.process.bootstrap import expose

        expose("cloudpickle", code.cloudpickle)
        return sys.modules["cloudpickle"]
