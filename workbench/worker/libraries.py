"""NumPy, torch and others for workloads: a file that imports them stays as light as this one.

Standard library only until one of them is used.
"""

import sys
from typing import TYPE_CHECKING, Any

__all__ = [
    "Array", "Image", "jax", "keras", "nn", "np", "onnx", "onnxruntime", "quantization", "tf",
    "torch",
]  # fmt: skip


class _Library:
    """A library that is imported when it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = sys.modules.get(self._name)
        if found is None:
            __import__(self._name)  # not importlib's: `start_up` times this one
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
        """The library itself if it is loaded already, so that a step pays for no proxy.

        A worker imports its backend before any workload.
        """
        names = {"nn": "torch.nn", "np": "numpy", "onnx": "onnx", "torch": "torch"}
        library = names.get(name)
        if library is None:
            raise AttributeError(name)
        return sys.modules.get(library) or _Library(library)
