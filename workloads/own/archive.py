"""The user's module in a file: an archive of torch.export, or on request a plain pickle."""

import os
import zipfile
from pathlib import Path
from typing import Any

from workbench.worker.failures import first_line
from workbench.worker.libraries import torch

from .target import unusable
from .tree import Example, module_with_inputs

OPAQUE = "opaque_obj"  # torch.export.load unpickles constants of this name
STRICT = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # torch's variable: no pickle may run code


def opened(path: Path, pickled: bool) -> tuple[Any, Example]:
    """The module in a file and its inputs.

    A `.pt2` archive of torch.export brings its example inputs.  Other files are pickles, which run
    code as they are loaded: only if `pickled`, of `(module, args)` or `(module, args, kwargs)`.
    WorkloadError `bad_input` if the file cannot be used.
    """
    if path.suffix != ".pt2":
        return _unpickled(path, pickled)
    try:
        with zipfile.ZipFile(path) as parts:
            names = parts.namelist()
    except (OSError, zipfile.BadZipFile) as error:
        text = f"{path.name} is not an archive of torch.export"
        raise unusable(text, "write it with torch.export.save") from error
    if any(each.endswith("/data.pkl") for each in names):
        hint = "rename it to .pt, or write it with torch.export.save"
        raise unusable(f"{path.name} is a file of torch.save, not of torch.export", hint)
    if any(OPAQUE in each for each in names) and not pickled:
        raise unusable(f"{path.name} holds Python objects", "export it without them")
    program = _program(path, pickled)
    if not program.example_inputs:
        hint = "save the program as torch.export.export returned it"
        raise unusable(f"{path.name} holds no example inputs", hint)
    args, kwargs = program.example_inputs
    return program.module(), Example(tuple(args), dict(kwargs))


def _unpickled(path: Path, pickled: bool) -> tuple[Any, Example]:
    if not pickled:
        hint = "use torch.export.save, or --allow-pickle if you trust the file"
        raise unusable(f"{path.name} is a pickle, which runs code when it is loaded", hint)
    try:
        found = torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:
        hint = "run this where its classes can be imported"
        raise unusable(f"{path.name} cannot be loaded: {first_line(error)}", hint) from error
    module, example = module_with_inputs(found) or (None, None)
    if example is None:
        hint = (
            "pickle (module, args), or name a function that builds the module: package.module:build"
        )
        kind = type(found).__name__
        raise unusable(f"{path.name} holds {kind}, not a module with its inputs", hint)
    return module, example


def on(path: Path, pickled: bool, device: str) -> Any:
    """The module of an archive on a device, to which the devices in its graph are changed too."""
    from torch.export.passes import move_to_device_pass

    return move_to_device_pass(_program(path, pickled), device).module()


def _program(path: Path, pickled: bool) -> Any:
    os.environ[STRICT] = "0" if pickled else "1"
    try:
        return torch.export.load(path)
    except Exception as error:
        hint = "export it again with this torch, or run with the --python that wrote it"
        raise unusable(f"{path.name} cannot be loaded: {first_line(error)}", hint) from error
    finally:
        del os.environ[STRICT]  # files that workers share are pickles


def is_graph(module: Any) -> bool:
    """Whether torch.export made the module, so that its mode is part of its graph."""
    return isinstance(module, torch.fx.GraphModule) and "eval" in vars(module)


def plain(module: Any) -> Any:
    """The module; if it is a graph, without its own `train` and `eval`, which raise."""
    for method in ("train", "eval") if is_graph(module) else ():
        vars(module).pop(method, None)
    return module
