"""Finds the versions of packages that an interpreter would import, without importing them.

Standard library only and Python 3.8 syntax: this file runs here and, for `--python PATH`, under a
foreign interpreter.  Prints one JSON line when run.
"""

import importlib.util
import json
import platform
import re
import sys
from pathlib import Path
from typing import Any

# Always reported, even if not installed; others only if they are installed.
CORE = ("torch", "numpy", "onnxruntime", "onnx", "textual", "nvidia-ml-py")
_FURTHER = (
    "openvino scikit-learn xgboost xgboost-cpu lightgbm jax jaxlib libtpu tensorflow",
    "tensorflow-cpu keras onnxruntime-gpu onnxruntime-directml onnxruntime-openvino",
    "onnxruntime-rocm onnxruntime-migraphx onnxscript pynvml nvidia-cudnn-cu12 nvidia-cudnn-cu13",
    "tensorrt tensorrt-cu12 tensorrt-cu13 triton",
)


def query() -> dict[str, Any]:
    """The fields of `records.machine.Software`, except variables, which are the engine's."""
    packages: dict[str, dict[str, str | None]] = {}
    for name in (*CORE, *" ".join(_FURTHER).split()):
        version = _version(name)
        if version is not None or name in CORE:
            packages[name] = {"version": version, "detail": None if version else "not installed"}
    torch = _package_file("torch", "version.py")
    if torch or packages["torch"]["version"]:
        version = _assigned(torch, "__version__") or packages["torch"]["version"]
        packages["torch"] = {"version": version, "detail": torch_build(torch, version)}
    build = _package_file("onnxruntime", "capi/build_and_package_info.py")
    for name in packages:
        if name.startswith("onnxruntime") and packages[name]["version"]:
            packages[name]["detail"] = onnxruntime_build(build, name)
    debug = ["Python"] if hasattr(sys, "gettotalrefcount") else []
    if re.search(r"^debug\s*=\s*True", torch, re.MULTILINE):
        debug.append("torch")
    return {
        "debug_builds": debug,
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": packages,
        "environment": {},
    }


def _version(name: str) -> str | None:
    from importlib import metadata  # slow to import, and screens import this module

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _package_file(package: str, file: str) -> str:
    """The path of a file in the package that an import would find; "" if there is none."""
    try:
        spec = importlib.util.find_spec(package)  # imports nothing for a top-level name
        folders = list(spec.submodule_search_locations or ()) if spec else []
        return Path(folders[0], file).read_text(encoding="utf-8", errors="replace")
    except (ImportError, ValueError, IndexError, OSError):
        return ""


def _assigned(text: str, name: str) -> str | None:
    """The string that `text` assigns to `name` at its top level, or None."""
    pattern = r"^" + re.escape(name) + r"\s*(?::[^=\n]*)?=\s*['\"]([^'\"]+)['\"]"
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else None


def torch_build(text: str, version: str | None) -> str:
    """The kind of torch's build, from its version.py or else its version."""
    cuda, hip, xpu = (_assigned(text, name) for name in ("cuda", "hip", "xpu"))
    rocm = _assigned(text, "rocm") or hip
    tag = re.search(r"\+cu(\d+)(\d)", version or "")
    if not cuda and not text and tag:
        cuda = "{}.{}".format(*tag.groups())
    if cuda:
        return "CUDA " + cuda
    if rocm:
        return "ROCm " + ".".join(rocm.split(".")[:2])
    if xpu:
        return "XPU " + xpu
    if sys.platform == "darwin":
        return "macOS build (MPS)"
    return "CPU build"


def onnxruntime_build(text: str, name: str) -> str:
    """The kind of onnxruntime's build; of two installed builds only one is imported."""
    package = _assigned(text, "package_name")
    cuda = _assigned(text, "cuda_version")
    if package is not None and package != name:
        return "installed, but the import finds " + package
    if cuda:
        return "CUDA " + cuda
    return "CPU build" if name == "onnxruntime" else name.replace("onnxruntime-", "") + " build"


if __name__ == "__main__":
    print(json.dumps(query()))  # noqa: T201
