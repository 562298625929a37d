"""Finds workloads: every file of `workloads/`, and of the folders in WORKBENCH_WORKLOADS.

A workload's name is the name of its file.  Engine and workers use this module, so it imports
nothing but the standard library, and files only when they are asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path

from .contract import Workload, WorkloadError

LAB = "onnx"  # the backend of the model lab's child
LAB_MODULE = "workloads.lab.child"
ENV = "WORKBENCH_WORKLOADS"  # folders of further workloads, separated as in PATH
BUILT_IN = Path(__file__).resolve().parent.parent / "workloads"
UNLISTED = {"model": BUILT_IN / "lab" / "workload.py"}  # whose cases `advise --model` plans


def files() -> dict[str, Path]:
    """Name to file of every workload there is; a user's file replaces a built-in one."""
    folders = [
        BUILT_IN,
        *(Path(part) for part in os.environ.get(ENV, "").split(os.pathsep) if part),
    ]
    found: dict[str, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise WorkloadError(
                f"{ENV} names {folder}, which is no folder", hint=f"correct or unset {ENV}"
            )
        for file in sorted(folder.glob("*.py")):
            if file.stem in UNLISTED:
                raise WorkloadError(
                    f"{file}: {file.stem} is the name of a part of workbench",
                    code="broken_workload",
                    hint="give the file another name",
                )
            if not file.stem.startswith("_"):
                found[file.stem] = file
    return found


def load(name: str) -> Workload:
    """The workload called `name`; WorkloadError says what is wrong with its file."""
    file = UNLISTED.get(name) or files().get(name)
    if file is None:
        raise WorkloadError(f"there is no workload {name!r}", code="unknown_workload")
    try:
        workload = _module(name, file).WORKLOAD
    except Exception as error:
        raise WorkloadError(
            f"{file.name} cannot be used: {type(error).__name__}: {error}",
            code="broken_workload",
            hint="a workload file binds an instance of workbench.contract.Workload to WORKLOAD",
        ) from error
    if not isinstance(workload, Workload) or workload.name != name:
        raise WorkloadError(
            f"{file.name} must bind WORKLOAD to a Workload named {name!r}", code="broken_workload"
        )
    return workload


def load_all() -> tuple[dict[str, Workload], dict[str, WorkloadError]]:
    """Every usable workload by name, and what is wrong with the others."""
    usable: dict[str, Workload] = {}
    broken: dict[str, WorkloadError] = {}
    for name in files():
        try:
            usable[name] = load(name)
        except WorkloadError as error:
            broken[name] = error
    return usable, broken


def _module(name: str, file: Path):  # type: ignore[no-untyped-def]
    if file.is_relative_to(BUILT_IN):
        inside = file.relative_to(BUILT_IN).with_suffix("")
        return importlib.import_module(".".join(("workloads", *inside.parts)))
    spec = importlib.util.spec_from_file_location(f"workbench_user_workload_{name}", file)
    assert spec is not None and spec.loader is not None  # noqa: S101 - it ends in .py
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
