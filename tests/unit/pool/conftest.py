"""A pool without processes."""

import math

import pytest
from pool_stand_ins import Guardian, Process

from workbench.pool import pool as workers, worker_process


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    found: list[bool] = []
    monkeypatch.setattr(worker_process, "drop_compiled", lambda *_: found.append(True))
    monkeypatch.setattr(workers, "WorkerProcess", Process)
    monkeypatch.setattr(workers, "Guardian", Guardian)
    monkeypatch.setattr(workers, "LOG_S", math.inf)  # the clock of the stand-ins stands still
    monkeypatch.setattr(workers.tempfile, "mkdtemp", lambda **_: "/nowhere")
    return found
