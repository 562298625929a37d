"""What --save-best writes: the artefact of the pick, and a script that runs it as measured."""

import inspect
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from workbench.contract import Case, WorkloadError
from workbench.worker.code import COMMAND, MODEL, Code
from workbench.worker.libraries import onnx, torch
from workbench.worker.session_options import ONNX_BACKENDS

from ..lab import graph
from . import export
from .function import arguments, wait_for
from .subject import Subject, found_in, takes_device
from .target import seed_loaded
from .torch_file import torch_file
from .training_parts import TrainingParts, as_given, maker_of

# Functions that are copied into the script of a function, and into that of a training.
COPIED: Sequence[Any] = (takes_device, arguments, wait_for, seed_loaded)
COPIED_TO_TRAIN: Sequence[Any] = (found_in, maker_of)
ARCHIVE, WEIGHTS, INPUTS = "model.pt2", "weights.pt", "inputs.pt"

HEAD = '''"""{name} as it was measured: {label}.

It prints the median time of {timed}.
"""

from __future__ import annotations

import importlib
import inspect
import random
import statistics
import sys
import time
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [{directory!r}, ""]  # where it was measured, else where you are
'''
TARGET = """
namespace = found = importlib.import_module({module!r})
for part in {attribute!r}.split("."):
    found = getattr(found, part)

"""
TORCH = """
import torch

torch.manual_seed({seed})
inputs, named, batch = torch.load(HERE / "inputs.pt", weights_only=False)  # our own file
"""
ARCHIVED = """program = torch.export.load(HERE / "model.pt2")
"""
MOVED = """from torch.export.passes import move_to_device_pass

program = move_to_device_pass(program, {device!r})
"""
GRAPH = """model = program.module()
for method in ("train", "eval"):  # its own refuse: the mode is part of the graph
    vars(model).pop(method, None)
"""
BUILT = """model = found
if not isinstance(model, torch.nn.Module):
    takes = inspect.signature(found).parameters
    model = found(device={device!r}) if "device" in takes else found()
model = model[0] if isinstance(model, (list, tuple)) else model
model = getattr(model, "_orig_mod", model)  # without torch.compile
model._compiled_call_impl = None
if hasattr(vars(model).get("forward"), "_torchdynamo_orig_callable"):
    del model.forward
model.load_state_dict({weights})
"""
TRAINED = """places = found, namespace, sys.modules.get(getattr(found, "__module__", None) or "")
loss = next(filter(callable, found_in(places, "loss")), None)
makers = filter(None, map(maker_of, found_in(places, "optimizer")))
trained = [weight for weight in model.parameters() if weight.requires_grad]
optimizer = next(makers, torch.optim.AdamW)(trained)
"""
WORK = """
def renewed():
    return arguments(getattr(found, "inputs", None), *{asked})


work, result, (inputs, named) = found, None, renewed()
"""
KEPT = """
import copy

kept = copy.deepcopy((inputs, named))


def renewed():  # a call changes them
    return copy.deepcopy(kept)
"""
TIMED = """

def step():
{call}


wait = {wait}
times = []
for _ in range(55):
{renewed}    wait()
    began = time.perf_counter()
    step()
    wait()
    times.append(time.perf_counter() - began)
print(f"median of {timed}: {{statistics.median(times[5:]) * 1e3:.3f}} ms")
"""


def save(
    code: Code, subject: Subject | None, picked: dict[str, Any], destination: str, **how: Any
) -> dict[str, Any]:
    """Write the folder `destination` in one piece; returns the names of its `files`.

    `picked` are the fields of a case, `how` what `_script` takes.  WorkloadError where the folder
    holds something already, or the module can be neither built again nor exported.
    """
    target, case = Path(destination), Case(**picked)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as hidden:
            written = Path(hidden, target.name)
            written.mkdir()
            if code.kind == COMMAND:
                file = written / "reproduce.sh"
                file.write_text("\n".join([*_shell(code), *how["call"], ""]))
                file.chmod(0o755)
            else:
                text = _script(written, code, subject, case, **how)
                (written / "reproduce.py").write_text(text)
            written.replace(target)
    except OSError as error:
        raise WorkloadError(f"cannot write {target}: {error.strerror}") from error
    return {"files": sorted(each.name for each in target.iterdir())}


def _shell(code: Code) -> list[str]:
    """The first lines of a command's script: where it ran, and what this worker set for it."""
    lines = ["#!/bin/sh", f"cd {shlex.quote(code.directory)} || exit"]
    first, _, others = os.environ.get("PATH", "").partition(os.pathsep)
    if others and first == str(Path(sys.executable).parent):  # that of --python
        lines.append(f'export PATH={shlex.quote(first)}:"$PATH"')
    if code.until is not None:
        lines += [
            "export PYTHONUNBUFFERED=1",
            f"# timed until it printed a line that matches {' '.join(code.until.splitlines())}",
        ]
    return lines


def _script(
    folder: Path,
    code: Code,
    subject: Subject | None,
    case: Case,
    *,
    onnx_file: str,
    setup: list[str],
    call: list[str],
    renews: bool = False,  # the inputs before each call
) -> str:
    """The text of the script, with the lines to paste; what it loads is written into `folder`."""
    device = case.computes_on
    kind, what, apart = device.partition(":")[0], "50 calls", ""
    if code.train:
        what, apart = "50 steps on one batch", ", without loading it"
    if subject is None:
        parts, call = _of_function(code, case, setup), ["global result", *call]
        wait = f"lambda: wait_for(result, {device!r})"
    else:
        _write(_inputs(code, subject, case.batch), folder / INPUTS)
        if case.backend in ONNX_BACKENDS:
            loaded = _of_onnx(folder, Path(onnx_file), setup)
        else:
            loaded = [*_module(folder, code, subject, case), *setup]
            what += f" with inputs on {device}" if kind != "cpu" else ""
        parts = [TORCH.format(seed=code.seed), *loaded, *([KEPT] if renews else [])]
        waited = "" if kind == "mps" else repr(device)  # without it, that of the current device
        wait = "lambda: None" if kind == "cpu" else f"lambda: torch.{kind}.synchronize({waited})"
    what += apart
    lines = "\n".join(f"    {line}" for line in call)
    renewed = "    inputs, named = renewed()\n" if renews else ""
    timed = TIMED.format(call=lines, wait=wait, renewed=renewed, timed=what)
    head = HEAD.format(name=code.name, label=case.label, timed=what, directory=code.directory)
    # The inputs of every call are the same: a keyword argument may be missing in the lines.
    return "\n".join([head, *parts, timed]).replace("model(*inputs)", "model(*inputs, **named)")


def _of_function(code: Code, case: Case, setup: list[str]) -> list[str]:
    """The parts that make a function `work` and its arguments."""
    work = WORK.format(asked=(case.batch, case.computes_on, code.seed))
    return [*setup, _target(code), *map(inspect.getsource, COPIED), work]


def _of_onnx(folder: Path, file: Path, setup: list[str]) -> list[str]:
    """Copy an exported model with all its files; returns the lines that load the copy."""
    shutil.copyfile(file, folder / MODEL)
    for name in graph.external_files(onnx.load(str(file), load_external_data=False)):
        shutil.copyfile(file.parent / name, folder / name)
    return [line.replace(repr(MODEL), f'str(HERE / "{MODEL}")') for line in setup]


def _target(code: Code) -> str:
    module, _, attribute = code.target.partition(":")
    return TARGET.format(module=module, attribute=attribute)


def _inputs(code: Code, subject: Subject, batch: int | None) -> tuple[Any, ...]:
    """The arguments of a call, and the batch that a loss may take."""
    if not code.train:
        example = subject.example(batch)
        return example.args, example.kwargs, None
    trained = TrainingParts(subject)
    sample = trained.sample(batch, code.seed)
    call = trained.arguments(sample)
    return call.args, call.kwargs, as_given(sample)


def _write(values: Any, path: Path) -> None:
    with torch_file(path) as file:
        torch.save(values, file)


def _module(folder: Path, code: Code, subject: Subject, case: Case) -> list[str]:
    """Write the module or its weights; returns the parts that load it as `model`."""
    device = case.computes_on
    builds, why = ":" in code.target and "::" not in code.target, f"{code.name} is trained"
    if not code.train:
        try:
            needed = export.archive(subject, case.batch, folder / ARCHIVE)
            built = BUILT.format(weights="program.state_dict", device=device)
            if builds:
                return [_target(code), ARCHIVED, built]
            moved = "" if device == "cpu" else MOVED.format(device=device)
            return [*(f"import {name}" for name in needed), ARCHIVED, moved, GRAPH]
        except WorkloadError as error:
            (folder / ARCHIVE).unlink(missing_ok=True)
            why = str(error)
    if not builds:
        raise WorkloadError(f"only a module that a function builds can be saved: {why}")
    _write(subject.module.state_dict(), folder / WEIGHTS)
    weights = f'torch.load(HERE / "{WEIGHTS}")'
    built = BUILT.format(weights=weights, device=device)
    if not code.train:
        return [_target(code), built]
    return [_target(code), built, *map(inspect.getsource, COPIED_TO_TRAIN), TRAINED]
