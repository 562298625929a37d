"""Good inputs for cases to start from."""

import sys
from pathlib import Path

from .room import Room

TESTS = Path(__file__).resolve().parents[2] / "tests"


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
