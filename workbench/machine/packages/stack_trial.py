"""Tries whether the installed packages really compute, device by device, with which libraries.

Standard library only outside the function of each package, and Python 3.8 syntax: the text runs
under the workers' interpreter, in one process per package, because a broken driver can crash it.
`python -c TEXT torch | onnxruntime` prints one JSON line.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any


def try_torch() -> dict[str, Any]:
    """A product and a convolution on each device, compared with the known answer."""
    import torch

    found: dict[str, Any] = {
        "version": torch.__version__,
        "libraries": {"CUDA": torch.version.cuda, "ROCm": torch.version.hip},
        "devices": {"cpu": _attempt(_compute, torch, "cpu")},
    }
    if torch.version.cuda or torch.version.hip:
        cudnn = torch.backends.cudnn.version()
        found["libraries"]["cuDNN"] = None if cudnn is None else _cudnn(cudnn)
        # is_available() swallows the reason; init() raises it.
        why = _attempt(torch.cuda.init)
        if why is not None:
            found["devices"]["cuda"] = why
        else:
            for ordinal in range(torch.cuda.device_count()):
                name = f"cuda:{ordinal}"
                found["devices"][name] = _attempt(_compute, torch, name)
    return found


def _compute(torch: Any, device: str) -> None:
    a = torch.arange(64.0, device=device).reshape(8, 8)
    product = (a @ torch.eye(8, device=device)).cpu()
    kernel = torch.ones(1, 1, 3, 3, device=device)
    sums = torch.nn.functional.conv2d(torch.ones(1, 1, 8, 8, device=device), kernel).cpu()
    if not bool((product == a.cpu()).all()) or not bool((sums == 9).all()):
        raise ArithmeticError("it computes wrong results")


def _cudnn(number: int) -> str:
    """91002 -> "9.10.2"; 8907 -> "8.9.7" (major * 10000 from version 9 on, * 1000 before)."""
    major, rest = divmod(number, 10000) if number >= 90000 else divmod(number, 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def try_onnxruntime() -> dict[str, Any]:
    """A session for each provider that is compiled in, because it may still be unusable."""
    import numpy
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)  # fatal only: errors are in the answer
    found: dict[str, Any] = {"version": onnxruntime.__version__, "libraries": {}, "devices": {}}
    for provider in onnxruntime.get_available_providers():
        if provider in ("CPUExecutionProvider", "CUDAExecutionProvider"):
            found["devices"][provider] = _attempt(_run, onnxruntime, numpy, provider)
    return found


def _run(onnxruntime: Any, numpy: Any, provider: str) -> None:
    session = onnxruntime.InferenceSession(doubling_model(), providers=[provider])
    if session.get_providers()[0] != provider:
        raise RuntimeError("it falls back to " + session.get_providers()[0] + " without an error")
    (answer,) = session.run(None, {"x": numpy.array([21.0], dtype=numpy.float32)})
    if answer.tolist() != [42.0]:
        raise ArithmeticError("it computes wrong results")


def doubling_model() -> bytes:
    """y = x + x for one float, in ONNX's protobuf (onnx.proto3), written by hand."""

    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    def integer(number: int, value: int) -> bytes:
        return bytes([number << 3, value])

    shape = field(1, integer(1, 1))
    kind = field(1, integer(1, 1) + field(2, shape))  # tensor of float, one element
    node = field(1, b"x") + field(1, b"x") + field(2, b"y") + field(4, b"Add")
    graph = field(1, node) + field(2, b"g")
    graph += field(11, field(1, b"x") + field(2, kind)) + field(12, field(1, b"y") + field(2, kind))
    return integer(1, 8) + field(7, graph) + field(8, integer(2, 13))  # IR 8, opset 13


def _attempt(action: Callable[..., Any], *arguments: Any) -> str | None:
    """None if it worked, else the reason in one line."""
    try:
        action(*arguments)
    except Exception as error:
        text = str(error).strip().split("\n")[0]
        return text or type(error).__name__
    return None


def main() -> None:
    """Answer on what was standard output; what the libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    tries = {"torch": try_torch, "onnxruntime": try_onnxruntime}
    found: dict[str, Any] = {}
    why = _attempt(lambda: found.update(tries[sys.argv[1]]()))
    answers.write(json.dumps({**found, "failure": why}) + "\n")
    answers.flush()
    os._exit(0)  # exit handlers of a broken driver can hang


if __name__ == "__main__":
    main()
