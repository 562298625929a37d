"""The user's module in a file: an archive of torch.export, or on request a plain pickle."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.contract import WorkloadError
from workbench.worker.failures import first_line

OPAQUE = "opaque_obj"  # constants by this name are unpickled by torch.export.load
STRICT = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # torch's variable: no pickle may run code


def opened(path: Path, pickled: bool) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The module in a file and what to call it with.

    A `.pt2` archive of torch.export brings its example inputs.  Other files are pickles, which run
    code as they are loaded: only if `pickled`, of `(module, args)` or `(module, args, kwargs)`.
    WorkloadError `bad_target` where there is no file, `bad_input` where it cannot be used.
    """
    if not path.is_file():
        raise WorkloadError(f"{path} does not exist", code="bad_target")
    if path.suffix == ".pt2":
        return _archived(path, pickled)
    if not pickled:
        hint = "use torch.export.save, or --allow-pickle if you trust the file"
        raise _unusable(f"{path.name} is a pickle, which runs code when it is loaded", hint)
    import torch
    from torch import nn

    try:
        found = torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:
        hint = "run this where its classes can be imported"
        raise _unusable(f"{path.name} cannot be loaded: {first_line(error)}", hint) from error
    parts = found if isinstance(found, (tuple, list)) else (found,)
    hint = "pickle (module, args), or name a function that builds the module: package.module:build"
    if isinstance(found, Mapping):
        raise _unusable(f"{path.name} holds weights without their module", hint)
    if not (parts and isinstance(parts[0], nn.Module)):
        raise _unusable(f"{path.name} holds {type(found).__name__}, not a torch module", hint)
    if not 2 <= len(parts) <= 3:
        raise _unusable(f"{path.name} holds a module without inputs to call it with", hint)
    args = parts[1] if isinstance(parts[1], (tuple, list)) else (parts[1],)
    return parts[0], tuple(args), dict(*parts[2:])


def _archived(path: Path, pickled: bool) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    import torch

    writer = _writer(path)
    before = os.environ.get(STRICT)
    os.environ[STRICT] = "0" if pickled else "1"
    try:
        with quiet():
            program = torch.export.load(path)
            module = program.module()
    except Exception as error:
        text = first_line(error)
        if writer not in ("", torch.__version__):
            text = f"torch {writer} wrote it, this is torch {torch.__version__}"
        hint = "export it again with this torch, or run with the --python that wrote it"
        raise _unusable(f"{path.name} cannot be loaded: {text}", hint) from error
    finally:
        if before is None:
            del os.environ[STRICT]
        else:
            os.environ[STRICT] = before
    if not program.example_inputs:
        hint = "save the program as torch.export.export returned it"
        raise _unusable(f"{path.name} holds no example inputs", hint)
    for method in ("train", "eval"):  # its own refuse; the mode is part of the graph
        vars(module).pop(method, None)
    args, kwargs = program.example_inputs
    return module, tuple(args), dict(kwargs)


def _writer(path: Path) -> str:
    """The version of torch that wrote an archive, if it says so."""
    hint = "write it with torch.export.save"
    try:
        with zipfile.ZipFile(path) as parts:
            names = [each for each in parts.namelist() if each.endswith("models/model.json")]
            if any(OPAQUE in each for each in parts.namelist()):
                raise _unusable(f"{path.name} holds Python objects", "export it without them")
            return str(json.loads(parts.read(names[0])).get("torch_version", "")) if names else ""
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise _unusable(f"{path.name} is not an archive of torch.export", hint) from error


def _unusable(message: str, hint: str) -> WorkloadError:
    return WorkloadError(message, code="bad_input", hint=hint)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the exporters' logs and warnings: their errors say it again."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
