"""The exhaustive measurement of `make regret` times what raced, and nothing else."""

from functools import partial
from itertools import groupby

import pytest

from benchmarks import regret, shared


def test_threads_of_one_session_do_not_spin_during_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns: list[str] = []
    monkeypatch.setattr(shared, "wait_until_quiet", partial(turns.append, "quiet"))
    monkeypatch.setattr(regret, "BLOCK_S", 0.0)
    regret.times({name: partial(turns.append, name) for name in "ab"}, rounds=2)
    assert [turn for turn, _ in groupby(turns)] == [
        *("quiet", "a", "quiet", "b"),
        *("quiet", "b", "quiet", "a"),
    ]
