"""Tries whether installed packages compute correctly on each device.

Standard library only outside the function of each package, and Python 3.8 syntax: this file runs
under the workers' interpreter, in one process per package, because a broken driver can crash it.
`python stack_trial.py torch` prints one JSON line; see `TRIALS` for other names.
"""

import importlib
import json
import os
import re
import runpy
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

WORKER = os.path.join(os.path.dirname(__file__), "..", "..", "worker")  # noqa: PTH118, PTH120
ONNX_GPU, OPENMP = (os.path.join(WORKER, name) for name in ("onnx_gpu.py", "openmp.py"))  # noqa: PTH118


def try_torch() -> dict[str, Any]:
    """A product and a convolution on each device, compared with the known answer."""
    import torch

    devices, why, libraries = ["cpu"], None, {"CUDA": torch.version.cuda, "ROCm": torch.version.hip}
    if torch.version.cuda or torch.version.hip:
        cudnn = torch.backends.cudnn.version()
        libraries["cuDNN"] = None if cudnn is None else _cudnn(cudnn)
        why = _attempt(torch.cuda.init)  # is_available() hides the reason
        devices += [f"cuda:{n}" for n in range(0 if why else torch.cuda.device_count())]
    for kind in ("xpu", "mps"):
        count = getattr(getattr(torch, kind, None), "device_count", int)()
        devices += [f"{kind}:{n}" for n in range(count)]

    def right(device: str) -> bool:
        a = torch.arange(64.0, device=device).reshape(8, 8)
        product = (a @ torch.eye(8, device=device)).cpu()
        kernel = torch.ones(1, 1, 3, 3, device=device)
        sums = torch.nn.functional.conv2d(torch.ones(1, 1, 8, 8, device=device), kernel).cpu()
        return bool((product == a.cpu()).all() and (sums == 9).all())

    found = _tried(torch, {name: name for name in devices}, right)
    found["devices"].update({"cuda": why} if why else {})
    return {**found, "libraries": libraries}


def _cudnn(number: int) -> str:
    """91002 -> "9.10.2"; 8907 -> "8.9.7" (major * 10000 from version 9 on, * 1000 before)."""
    major, rest = divmod(number, 10000) if number >= 90000 else divmod(number, 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def try_onnxruntime() -> dict[str, Any]:
    """A convolution by each provider that is built in, since only that needs cuDNN."""
    import numpy
    import onnxruntime

    gpu = runpy.run_path(ONNX_GPU)
    built = getattr(onnxruntime, "cuda_version", "") or None
    cuda = built or gpu["CUDA"] in onnxruntime.get_available_providers()
    x = {"x": numpy.ones((1, 1, 3, 3), numpy.float32)}

    def right(provider: str) -> bool:
        session = gpu["open_session"](onnxruntime, gpu["CONVOLUTION"], None, [(provider, {})])
        return bool(session.run(None, x)[0] == 9)

    tried = {name: name for name in [gpu["CPU"], *([gpu["CUDA"]] if cuda else [])]}
    return {**_tried(onnxruntime, tried, right), "libraries": {"CUDA": built}}


def try_openvino() -> dict[str, Any]:
    import numpy
    import openvino

    core = openvino.Core()
    model = core.read_model(runpy.run_path(ONNX_GPU)["DOUBLING"])
    x = numpy.array([21.0], numpy.float32)
    devices = {name.lower(): name for name in core.available_devices}
    return _tried(openvino, devices, lambda name: core.compile_model(model, name)([x])[0] == 42)


def try_jax() -> dict[str, Any]:
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # it would take most of a GPU's memory
    import jax
    import numpy

    def right(device: Any) -> bool:
        product = jax.jit(lambda a: a @ a)(jax.device_put(numpy.ones((8, 8)), device))
        return bool((numpy.asarray(product) == 8).all())

    others = {f"{d.platform}:{d.id}": d for d in jax.devices() if d.platform != "cpu"}
    return _tried(jax, {"cpu": jax.devices("cpu")[0], **others}, right)


def try_keras(library: str) -> dict[str, Any]:
    """A product on each device of TensorFlow; torch has a trial of its own."""
    engine = library.replace("keras", "torch")
    os.environ.update(KERAS_BACKEND=engine, KERAS_HOME=os.devnull, TF_FORCE_GPU_ALLOW_GROWTH="true")
    import keras

    def right(device: str) -> bool:
        with keras.device(device):
            return float(keras.ops.sum(keras.ops.ones((8, 8)) @ keras.ops.ones((8, 8)))) == 512

    gpus = keras.distribution.list_devices("gpu") if library == "tensorflow" else []
    return _tried(importlib.import_module(library), {n: n for n in ("cpu", *gpus)}, right)


def try_trees(module: str, learner: str) -> dict[str, Any]:
    """Boosted trees learn the sign of a number."""
    import numpy

    make = getattr(importlib.import_module(module), learner)
    data = numpy.linspace(-1, 1, 200).reshape(-1, 1)
    labels = (data[:, 0] > 0).astype(int)
    library = sys.modules[module.split(".")[0]]
    right = lambda _: (make().fit(data, labels).predict(data) == labels).all()  # noqa: E731
    return _tried(library, {"cpu": None}, right)


def _tried(library: Any, devices: dict[str, Any], right: Callable[[Any], Any]) -> dict[str, Any]:
    def compute(device: Any) -> None:
        if not right(device):
            raise ArithmeticError("it computes wrong results")

    tried = {name: _attempt(compute, device) for name, device in devices.items()}
    return {"version": library.__version__.split("-")[0], "devices": tried}


def _attempt(action: Callable[..., Any], *arguments: Any) -> str | None:
    """None if it worked, else the reason in one line."""
    try:
        action(*arguments)
    except Exception as error:
        text = re.sub(r"Exception from .*\n", "", str(error)).strip().split("\n")[0]
        return text or type(error).__name__
    return None


def main() -> None:
    """Write to the original standard output; output of libraries goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    found: dict[str, Any] = {}
    why = _attempt(lambda: found.update(TRIALS[sys.argv[1]]()))
    clash = runpy.run_path(OPENMP)["clashing_runtimes"]()
    found["libraries"] = {**found.get("libraries", {}), **clash}
    answers.write(json.dumps({**found, "failure": why}) + "\n")
    answers.flush()
    os._exit(0)  # exit handlers of a broken driver can hang


TRIALS: dict[str, Callable[[], dict[str, Any]]] = {
    "torch": try_torch,
    "onnxruntime": try_onnxruntime,
    "openvino": try_openvino,
    "jax": try_jax,
    "tensorflow": partial(try_keras, "tensorflow"),
    "keras": partial(try_keras, "keras"),
    "sklearn": partial(try_trees, "sklearn.ensemble", "HistGradientBoostingClassifier"),
    "xgboost": partial(try_trees, "xgboost", "XGBClassifier"),
    "lightgbm": partial(try_trees, "lightgbm", "LGBMClassifier"),
}

if __name__ == "__main__":
    main()
