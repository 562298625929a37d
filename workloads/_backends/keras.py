"""Keras 3 on torch; with TensorFlow it is the backend `tensorflow`."""

import os

from workbench.worker.libraries import keras

from .torch import Torch


class Keras(Torch):
    name = "keras"
    install = "`pip install keras`"
    optional = True
    oldest, newest = "3.5", "3.15"

    def version(self) -> str:
        # Keras would read the user's settings, and take the first GPU for candidates of the CPU.
        os.environ.update(KERAS_BACKEND="torch", KERAS_HOME=os.devnull, KERAS_TORCH_DEVICE="cpu")
        return super().version()

    def start(self, device: str) -> None:
        super().start(device)
        self._place = keras.device(device)
        self._place.__enter__()  # for the life of this worker


BACKEND = Keras()
