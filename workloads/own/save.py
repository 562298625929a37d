"""What --save-best writes: the artefact of the pick, and a script that runs it as measured."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.contract import Case, WorkloadError, decode_case
from workbench.worker.code import COMMAND, FUNCTION, Code

if TYPE_CHECKING:
    from .subject import Subject

SCRIPT, COMMANDS = "reproduce.py", "reproduce.sh"
MODEL, ARCHIVE, WEIGHTS, INPUTS = "model.onnx", "model.pt2", "weights.pt", "inputs.pt"

HEAD = '''"""{name} as it was measured: {label}.

Run it where {name} can be imported; it prints the median time of 50 calls.
"""

import importlib
import inspect
import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, "")
'''
TARGET = """
namespace = found = importlib.import_module({module!r})
for part in {attribute!r}.split("."):
    found = getattr(found, part)
device = {{"device": "cpu"}}


def part_of(name, default):
    return getattr(found, name, getattr(namespace, name, default))


"""
TORCH = """
import torch

torch.manual_seed({seed})
inputs, named = torch.load(HERE / "inputs.pt", weights_only=False)  # our own file
"""
ARCHIVED = """program = torch.export.load(HERE / "model.pt2")
"""
GRAPH = """model = program.module()
for method in ("train", "eval"):  # its own refuse: the mode is part of the graph
    vars(model).pop(method, None)
"""
BUILT = """model = found
if not isinstance(model, torch.nn.Module):
    model = found(**(device if "device" in inspect.signature(found).parameters else {{}}))
model = model[0] if isinstance(model, tuple) else model
model.load_state_dict({weights})
"""
TRAINED = """loss = part_of("loss", lambda output: output)
optimizer = part_of("optimizer", torch.optim.AdamW)(model.parameters())
"""
WORK = """work, batch, make = found, {batch!r}, part_of("inputs", None)
inputs = () if batch is None or not inspect.signature(work).parameters else (batch,)
if make is not None:
    inputs = make(*([batch] if inspect.signature(make).parameters else []))
inputs = inputs if isinstance(inputs, tuple) else (inputs,)
"""
TIMED = """

def step():
{call}


wait = {wait}
for _ in range(5):
    step()
times = []
for _ in range(50):
    wait()
    began = time.perf_counter()
    step()
    wait()
    times.append(time.perf_counter() - began)
print(f"median of 50 calls: {{statistics.median(times) * 1e3:.3f}} ms")
"""


def save(
    code: Code,
    subject: Subject | None,
    picked: dict[str, Any],
    destination: str,
    onnx_file: str,
    setup: Sequence[str],
    call: Sequence[str],
) -> dict[str, Any]:
    """Write the folder `destination` in one piece; returns the names of its `files`.

    `picked` are the fields of a case, `setup` and `call` its lines to paste.  WorkloadError where
    the folder holds something already, or the module can be neither built again nor exported.
    """
    target, case = Path(destination), decode_case(picked)
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise WorkloadError(
            f"{target} exists already", code="unsupported", hint="name a new or empty folder"
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        written = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            _fill(written, code, subject, case, onnx_file, list(setup), list(call))
            written.chmod(0o755)
            written.replace(target)
        finally:
            shutil.rmtree(written, ignore_errors=True)
    except OSError as error:
        raise WorkloadError(f"cannot write {target}: {error.strerror}") from error
    return {"files": sorted(each.name for each in target.iterdir())}


def _fill(
    folder: Path,
    code: Code,
    subject: Subject | None,
    case: Case,
    onnx_file: str,
    setup: list[str],
    call: list[str],
) -> None:
    if code.kind == COMMAND:
        file = folder / COMMANDS
        file.write_text("\n".join(["#!/bin/sh", *call, ""]))
        file.chmod(0o755)
        return
    head = HEAD.format(name=code.name, label=case.label)
    module, _, attribute = code.target.partition(":")
    target = TARGET.format(module=module, attribute=attribute)
    if code.kind == FUNCTION or subject is None:
        parts = [head, *setup, target, WORK.format(batch=case.batch)]
    else:
        example = subject.example(case.batch)
        import torch

        torch.save((example.args, example.kwargs), folder / INPUTS)
        load = TORCH.format(seed=code.seed)
        if case.backend == "onnxruntime":
            _copy(Path(onnx_file), folder / MODEL)
            setup = [line.replace(repr(MODEL), f'str(HERE / "{MODEL}")') for line in setup]
        else:
            load += _module(folder, code, subject, case.batch, target)
        parts = [head, load, *(line for line in setup if not line.startswith("loader"))]
    wait = "lambda: None" if case.device == "cpu" else "torch.cuda.synchronize"
    timed = TIMED.format(call="\n".join(f"    {line}" for line in call), wait=wait)
    # The inputs of every call are the same: a keyword argument may be missing in the lines.
    text = "\n".join([*parts, timed]).replace("model(*inputs)", "model(*inputs, **named)")
    (folder / SCRIPT).write_text(text)


def _module(folder: Path, code: Code, subject: Subject, batch: int | None, target: str) -> str:
    """Write the module or its weights; returns the lines that load it as `model`."""
    from .export import archive

    builds = ":" in code.target and not code.target.endswith(".py") and "::" not in code.target
    weights, archived = f'torch.load(HERE / "{WEIGHTS}")', ""
    try:
        if code.train:
            raise WorkloadError(f"{code.name} is trained", code="not_exported")
        archive(subject, batch, folder / ARCHIVE)
        weights, archived = "program.state_dict", ARCHIVED
    except WorkloadError as error:
        (folder / ARCHIVE).unlink(missing_ok=True)
        if not builds:
            raise WorkloadError(
                f"only a module that a function builds can be saved: {error}"
            ) from error
        import torch

        torch.save(subject.module.state_dict(), folder / WEIGHTS)
    if not builds:
        return archived + GRAPH
    return target + archived + BUILT.format(weights=weights) + (TRAINED if code.train else "")


def _copy(source: Path, target: Path) -> None:
    """Copy a model with the files of its weights, if those are apart."""
    import onnx

    from ..lab import graph

    shutil.copyfile(source, target)
    for name in graph.external_files(onnx.load(str(source), load_external_data=False)):
        (target.parent / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.parent / name, target.parent / name)
