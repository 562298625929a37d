"""The child process that lists the GPUs of one backend, as one line of JSON."""

import json
import os

from ..catalog.importing import import_backend


def main(arguments: list[str]) -> None:
    (name,) = arguments
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    backend = import_backend(name)
    backend.version()  # some settings must precede the import
    answers.write(json.dumps(backend.gpus()) + "\n")
    answers.flush()
    os._exit(0)  # exit handlers of a broken driver can hang
