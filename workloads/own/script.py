"""Runs a user's script once, unchanged, and hands one of the modules that it called to others."""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from workbench.contract import WorkloadError
from workbench.text.sanitize import shown
from workbench.worker.code import Code
from workbench.worker.failures import first_line

from .calls import Example, TimeUp, Watch, Watched

SHAPES = 5  # most that are listed
PICKLE, ABOUT = "module.pt", "module.json"  # files in `Code.folder`


@dataclass(frozen=True)
class RanModule:
    """A module that the script called; the first five fields are those of `CalledModule`."""

    name: str  # its class, numbered from the second instance on: "Net", "Net#2"
    calls: int  # those that failed or were cut included
    seconds: float
    share: float  # of the script's seconds; with threads, shares may add up to more than 1
    shapes: list[str]  # of tensor inputs, such as "8x3x32x32, mask=8x1"; the most frequent first
    notes: list[str]  # sentences: how it was called
    module: Any  # in its state when the script ended
    examples: list[Example]  # (args, kwargs) of the most frequent shape, and of the next if any


@dataclass(frozen=True)
class Ran:
    """A script's run: its modules in the order of their first calls, and what became of it.

    `seconds` is wall time from the script's first line until it and its non-daemon threads ended or
    were cut.  Imports by the script count, except torch, which is there already; the copying of
    inputs does not.  A module's seconds are those of its forward calls, each until CUDA is done.
    """

    modules: list[RanModule]
    seconds: float
    cut: bool  # time was up
    notes: list[str]  # sentences: how it ended, what it left
    paths: list[str]  # folders that it added to `sys.path`, its own first


def run(code: Code) -> Ran:
    """Run the script of `code` as `python script.py ARGUMENTS` would, for `code.seconds` at most.

    Call it once, in the main thread.  Modules called inside a compiled function are not seen.
    WorkloadError: `bad_target` if there is no such file, `user_code` if it failed before it called
    a module, `bad_input` if it called none.
    """
    import torch

    name = code.target.partition("::")[0]
    script = Path(code.directory, name)
    if not script.is_file():
        raise WorkloadError(f"there is no script {name}", code="bad_target")
    threads, gradients = torch.get_num_threads(), torch.is_grad_enabled()
    paths, alive, watch = list(sys.path), set(threading.enumerate()), Watch()
    with _as_main(script, [name, *code.arguments], code.directory) as main:
        failure = _failure(script, main, watch, code.seconds)
        added = [os.path.abspath(path) for path in sys.path if path not in paths]  # noqa: PTH100
    torch.set_num_threads(threads)
    torch.set_grad_enabled(gradients)
    gc.collect()  # ends the workers of a DataLoader that the script left behind
    if not watch.modules:
        if failure:
            raise WorkloadError(f"{name} {failure} before it called a module", code="user_code")
        raise WorkloadError(
            f"{name} called no torch module" + f" within {code.seconds:.3g} s" * watch.cut,
            code="bad_input",
            hint="name a function that returns the module: `--torch package.module:build`",
        )
    notes = [f"The script {failure}."] if failure else []
    if left := set(threading.enumerate()) - alive:
        notes.append(f"Threads of the script still running: {len(left)}.")
    return Ran(_listed(watch.modules, watch.seconds), watch.seconds, watch.cut, notes, added)


def choose(ran: Ran, name: str = "") -> RanModule:
    """The module called `name`, or else the one with the largest share of the script's time.

    WorkloadError: `bad_target` if none is called so, `unsupported` if its inputs cannot be copied.
    """
    found = [module for module in ran.modules if name in ("", module.name)]
    if not found:
        seen = ", ".join(module.name for module in ran.modules)
        raise WorkloadError(f"the script calls no {name!r}, but {seen}", code="bad_target")
    chosen = max(found, key=lambda module: module.seconds)
    if not chosen.examples:
        raise WorkloadError(f"the inputs of {chosen.name} cannot be copied")
    return chosen


def hand_over(chosen: RanModule, ran: Ran, code: Code) -> str | None:
    """Write the module and its most frequent inputs to `code.folder` for other processes.

    Its weights are those at the end of the script.  Classes of `__main__` travel by value, others
    by name.  Returns why it cannot be handed over, or None.
    """
    import torch

    folder = Path(code.folder)
    about = {"paths": ran.paths, "cloudpickle": code.cloudpickle}
    (folder / ABOUT).write_text(json.dumps(about))
    try:
        pickler = _cloudpickle(code.cloudpickle)
        handed = (chosen.module, *chosen.examples[0])
        torch.save(handed, folder / PICKLE, pickle_module=pickler, pickle_protocol=5)
    except Exception as error:
        (folder / PICKLE).unlink(missing_ok=True)
        return f"{chosen.name} cannot be handed to another process: {first_line(error)}"
    return None


def received(folder: Path) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The module, args and kwargs that `hand_over` wrote to `folder`, with all tensors on the CPU.

    WorkloadError `user_code` if they cannot be loaded here.
    """
    import torch

    about = json.loads((folder / ABOUT).read_text())
    new = [path for path in about["paths"] if path not in sys.path]
    sys.path[:0] = new
    try:
        _cloudpickle(about["cloudpickle"])
        module, args, kwargs = torch.load(folder / PICKLE, map_location="cpu", weights_only=False)
    except Exception as error:
        message = f"the script's module cannot be loaded in another process: {first_line(error)}"
        raise WorkloadError(message, code="user_code") from error
    finally:
        _to_the_end(new)
    return module, args, kwargs


def _cloudpickle(ours: str) -> Any:
    """The interpreter's own cloudpickle, or else ours, which is pure Python."""
    try:
        return importlib.import_module("cloudpickle")
    except ImportError:
        from workbench.process.bootstrap import expose

        expose("cloudpickle", ours)
        return sys.modules["cloudpickle"]


def _listed(modules: list[Watched], seconds: float) -> list[RanModule]:
    listed: list[RanModule] = []
    for each in modules:
        kind = type(each.module).__name__
        number = sum(type(other.module).__name__ == kind for other in listed) + 1
        name = kind if number == 1 else f"{kind}#{number}"
        notes = [
            f"{name} was called {way}" + f" in {n} of {each.calls} calls" * (n < each.calls) + "."
            for way, n in each.ways.items()
        ]
        share = min(1.0, each.seconds / seconds)
        shapes = [shape for shape, _ in each.shapes.most_common()]  # ties: the first seen
        examples = [each.examples[shape] for shape in shapes if shape in each.examples][:2]
        if each.module._compiled_call_impl is not None:
            each.module._compiled_call_impl = None  # of `module.compile()`: the race starts eager
        listed.append(
            RanModule(
                name, each.calls, each.seconds, share, shapes[:SHAPES], notes, each.module, examples
            )
        )
    return listed


def _failure(script: Path, main: ModuleType, watch: Watch, seconds: float) -> str:
    """Run the script to its end or cut; returns what went wrong, or nothing."""
    own, alive, failure = os.getpid(), set(threading.enumerate()), ""
    with suppress(TimeUp), watch.watching(seconds):
        try:
            program = compile(script.read_bytes(), str(script), "exec", dont_inherit=True)
            exec(program, main.__dict__)  # noqa: S102 - the user asked for it
        except TimeUp:
            raise
        except SystemExit as end:
            failure = f"exited with {shown(str(end.code), 200)}" if end.code else ""
        except BaseException as error:
            failure = f"raised {first_line(error)}"
            with suppress(OSError, ValueError):  # the log is full, or the script closed it
                traceback.print_exc()
        if os.getpid() != own:
            os._exit(bool(failure))  # a copy that the script forked
        for thread in set(threading.enumerate()) - alive:
            if not thread.daemon:
                thread.join()
    return failure


@contextmanager
def _as_main(script: Path, argv: list[str], directory: str) -> Iterator[ModuleType]:
    """The module in which the script runs, in its surroundings; its folder stays importable."""
    if script.stem in getattr(sys, "stdlib_module_names", ()):
        importlib.import_module(script.stem)  # a later import of it would run the script again
    main = ModuleType("__main__")
    main.__file__ = os.path.abspath(script)  # noqa: PTH100 - Python follows no link here,
    folder = str(script.resolve().parent)  # but does here
    kept = sys.argv, sys.modules["__main__"], Path.cwd()
    sys.argv, sys.modules["__main__"] = argv, main
    sys.path.insert(0, folder)
    os.chdir(directory)
    try:
        yield main
    finally:
        sys.argv, sys.modules["__main__"] = kept[:2]
        os.chdir(kept[2])
        _to_the_end([folder])


def _to_the_end(folders: list[str]) -> None:
    """Move folders to the end of `sys.path`, where they hide no other module."""
    for folder in folders:
        with suppress(ValueError):  # the script removed it
            sys.path.remove(folder)
        sys.path.append(folder)
