"""Writes the files of --save-best: those of the pick, and a script that runs it as measured."""

import inspect
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.contract import Case, WorkloadError
from workbench.worker.code import COMMAND, MODEL, Code
from workbench.worker.libraries import onnx, torch
from workbench.worker.session_options import ONNX_BACKENDS

from ..lab import graph
from . import export
from .function import arguments, wait_for
from .subject import Subject, found_in, parameters_of, takes_device
from .target import seed_loaded
from .training_parts import called_with, maker_of

# Functions that are copied into the script of a function, and into that of a training.
COPIED: Sequence[Any] = (parameters_of, takes_device, arguments, wait_for, seed_loaded)
COPIED_TO_TRAIN: Sequence[Any] = (found_in, parameters_of, maker_of)
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
makers = map(maker_of, [*found_in(places, "optimizer"), torch.optim.AdamW])
optimizer = next(filter(None, makers))(model)
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
    code: Code,
    subject: Subject | None,
    picked: dict[str, Any],
    destination: str,
    hidden: str,
    **how: Any,
) -> dict[str, Any]:
    """Write the folder `destination` in one piece, first under the name `hidden`, which the engine
    removes if it is left; returns the names of its `files`.

    `picked` are the fields of a case, `how` those of `_Script`.  WorkloadError if the folder
    holds something already, or the module can be neither built again nor exported.
    """
    target, written = Path(destination), Path(hidden)
    try:
        written.mkdir(parents=True)
        script = _Script(written, code, Case(**picked), **how)
        if code.kind == COMMAND:
            file = written / "reproduce.sh"
            file.write_text("\n".join([*_shell(code), *script.call, ""]))
            file.chmod(0o755)
        else:
            (written / "reproduce.py").write_text(script.text(subject))
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


@dataclass(frozen=True)
class _Script:
    """A script that runs the pick by the lines to paste; `folder` gets what it loads."""

    folder: Path
    code: Code
    case: Case
    onnx_file: str
    setup: list[str]
    call: list[str]
    renews: bool = False  # whether each call gets fresh inputs

    def text(self, subject: Subject | None) -> str:
        """The text of the script; there is no subject for a function."""
        code, device = self.code, self.case.computes_on
        kind, call = device.partition(":")[0], self.call
        what = "50 steps on one batch" if code.train else "50 calls"
        if subject is None:
            work = WORK.format(asked=(self.case.batch, device, code.seed))
            parts = [*self.setup, _target(code), *map(inspect.getsource, COPIED), work]
            call = ["global result", *call]
            wait = f"lambda: wait_for(result, {device!r})"
        else:
            example, batch = called_with(code, subject, self.case.batch)
            _write((example.args, example.kwargs, batch), self.folder / INPUTS)
            if self.case.backend in ONNX_BACKENDS:
                loaded = self._of_onnx()
            else:
                loaded = [*self._module(subject), *self.setup]
                what += f" with inputs on {device}" if kind != "cpu" else ""
            parts = [TORCH.format(seed=code.seed), *loaded, *([KEPT] if self.renews else [])]
            waited = "" if kind == "mps" else repr(device)  # without it, the current device
            queued = f"lambda: torch.{kind}.synchronize({waited})"
            wait = "lambda: None" if kind == "cpu" else queued
        what += ", without loading it" if code.train else ""
        lines = "\n".join(f"    {line}" for line in call)
        renewed = "    inputs, named = renewed()\n" if self.renews else ""
        timed = TIMED.format(call=lines, wait=wait, renewed=renewed, timed=what)
        named = {"name": code.name, "label": self.case.label, "directory": code.directory}
        head = HEAD.format(timed=what, **named)
        # The lines to paste may lack keyword arguments, which every call needs.
        return "\n".join([head, *parts, timed]).replace("model(*inputs)", "model(*inputs, **named)")

    def _of_onnx(self) -> list[str]:
        """Copy the exported model with all its files; returns the lines that load the copy."""
        file = Path(self.onnx_file)
        shutil.copyfile(file, self.folder / MODEL)
        for name in graph.external_files(onnx.load(str(file), load_external_data=False)):
            shutil.copyfile(file.parent / name, self.folder / name)
        return [line.replace(repr(MODEL), f'str(HERE / "{MODEL}")') for line in self.setup]

    def _module(self, subject: Subject) -> list[str]:
        """Write the module or its weights; returns the parts that load it as `model`."""
        code, device, archive = self.code, self.case.computes_on, self.folder / ARCHIVE
        builds = ":" in code.target and "::" not in code.target
        if not code.train:
            try:
                needed = export.archive(subject, self.case.batch, archive)
                imports = [f"import {name}" for name in needed]
                built = BUILT.format(weights="program.state_dict", device=device)
                if builds:
                    return [_target(code), *imports, ARCHIVED, built]
                moved = "" if device == "cpu" else MOVED.format(device=device)
                return [*imports, ARCHIVED, moved, GRAPH]
            except WorkloadError as error:
                archive.unlink(missing_ok=True)
                if not builds:
                    text = "only a module that a function builds can be saved"
                    raise WorkloadError(f"{text}: {error}") from error
        _write(subject.module.state_dict(), self.folder / WEIGHTS)
        built = BUILT.format(weights=f'torch.load(HERE / "{WEIGHTS}")', device=device)
        copied = [*map(inspect.getsource, COPIED_TO_TRAIN), TRAINED] if code.train else []
        return [_target(code), built, *copied]


def _target(code: Code) -> str:
    module, _, attribute = code.target.partition(":")
    return TARGET.format(module=module, attribute=attribute)


def _write(values: Any, path: Path) -> None:
    with export.torch_file(path) as file:
        torch.save(values, file)
