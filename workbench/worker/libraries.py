"""NumPy, torch and others for workloads, imported when they are first used."""

import sys
from typing import TYPE_CHECKING, Any

__all__ = [
    "Array", "Image", "jax", "keras", "nn", "np", "onnx", "onnxruntime", "quantization", "tf",
    "torch",
]  # fmt: skip


class _Library:
    """A library that is imported at its first use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = sys.modules.get(self._name)
        if found is None:
            __import__(self._name)  # not by importlib, since `start_up` times `__import__`
            found = sys.modules[self._name]
        return getattr(found, name)


if TYPE_CHECKING:
    import jax
    import keras
    import numpy as np
    import onnx
    import onnxruntime
    import tensorflow as tf
    import torch
    from numpy.typing import NDArray
    from onnxruntime import quantization
    from PIL import Image
    from torch import nn

    Array = NDArray[Any]
else:
    Array = Any
    jax, keras, onnxruntime = map(_Library, ("jax", "keras", "onnxruntime"))
    Image, tf = _Library("PIL.Image"), _Library("tensorflow")
    quantization = _Library("onnxruntime.quantization")

    def __getattr__(name):
        """The library itself if it is already loaded, so that steps do not pay for a proxy; a
        worker imports its backend before any workload."""
        names = {"nn": "torch.nn", "np": "numpy", "onnx": "onnx", "torch": "torch"}
        library = names.get(name)
        if library is None:
            raise AttributeError(name)
        return sys.modules.get(library) or _Library(library)
