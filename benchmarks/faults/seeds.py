"""Good inputs for cases to start from."""

import sys
from collections.abc import Iterable
from pathlib import Path

from .room import Room

TESTS = Path(__file__).resolve().parents[2] / "tests"


def filled(room: Room, words: Iterable[str]) -> list[str]:
    """`words` with the path of a good input for each word in capitals."""
    return [str(SEEDS[word](room)) if word in SEEDS else word for word in words]


def small_model(room: Room) -> Path:
    """A model of two layers, outside the case's own folders."""
    path = room.root / "streams" / "model.onnx"
    if not path.exists():
        if str(TESTS) not in sys.path:
            sys.path.append(str(TESTS))
        import onnx
        import onnx_models

        onnx.save(onnx_models.mlp(), path)
    return path


def a_document(room: Room) -> Path:
    return room.subject.fixtures / "documents" / "advise-model.json"


def a_journal(room: Room) -> Path:
    return room.subject.fixtures / "journals" / "run-sweep.jsonl"


def silent_python(room: Room) -> Path:
    """An interpreter that never answers."""
    path = room.root / "streams" / "silent-python"
    path.write_text("#!/bin/sh\nsleep 600\n")
    path.chmod(0o755)
    return path


SEEDS = {
    "MODEL": small_model,
    "DOCUMENT": a_document,
    "JOURNAL": a_journal,
    "PYTHON": lambda room: room.subject.python,
    "SILENT": silent_python,
}
