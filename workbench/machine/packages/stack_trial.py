"""Tries whether the installed packages really compute, device by device, with which libraries.

Standard library only outside the function of each package, and Python 3.8 syntax: the text runs
under the workers' interpreter, in one process per package, because a broken driver can crash it.
`python stack_trial.py torch | onnxruntime` prints one JSON line.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Callable
from typing import Any

ONNX_GPU = os.path.join(os.path.dirname(__file__), "..", "..", "worker", "onnx_gpu.py")  # noqa: PTH118, PTH120


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

    gpu = runpy.run_path(ONNX_GPU)
    built = getattr(onnxruntime, "cuda_version", "") or None
    cuda = built or gpu["CUDA"] in onnxruntime.get_available_providers()
    tried = [gpu["CPU"], *([gpu["CUDA"]] if cuda else [])]
    devices = {name: _attempt(_run, gpu, onnxruntime, numpy, name) for name in tried}
    return {"version": onnxruntime.__version__, "libraries": {"CUDA": built}, "devices": devices}


def _run(gpu: dict[str, Any], onnxruntime: Any, numpy: Any, provider: str) -> None:
    session = gpu["open_session"](onnxruntime, gpu["DOUBLING"], None, [(provider, {})])
    (answer,) = session.run(None, {"x": numpy.array([21.0], dtype=numpy.float32)})
    if answer.tolist() != [42.0]:
        raise ArithmeticError("it computes wrong results")


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
