"""Keras 3 on torch; with TensorFlow it is the backend `tensorflow`."""

from __future__ import annotations

import os
from tempfile import gettempdir

from .torch import Torch


class Keras(Torch):
    name = "keras"
    install = "`pip install keras`"
    optional = True
    oldest = "3.5"

    def version(self) -> str:
        os.environ.update(KERAS_BACKEND="torch", KERAS_HOME=gettempdir())  # not the user's settings
        return super().version()


BACKEND = Keras()
