"""Kills, signals, odd surroundings, damaged files, lying interpreters: each case is a test."""

import fcntl
import tempfile
from pathlib import Path

import pytest

from benchmarks.faults import (
    command_lines,
    documents,
    environment,
    interpreters,
    kills,
    models,
    signals,
    targets,
    terminals,
    toml_files,
    user_workloads,
)
from benchmarks.faults.case import Case
from benchmarks.faults.runner import tried
from benchmarks.faults.subject import Subject

# Each part, and how many of its cases fit into half an hour with the others, on two cores.
PARTS = {
    targets: 36,
    environment: 90,
    user_workloads: 15,
    interpreters: 30,
    toml_files: 250,
    command_lines: 100,
    documents: 100,
    models: 20,
    terminals: 45,
    signals: 35,
    kills: 50,
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    asked = metafunc.config.getoption
    found = {}
    for part, usual in PARTS.items():
        for number in range(asked("--each") or usual):
            if (case := part.case_of(number, asked("--seed"))) is not None:
                found[f"{part.__name__.rpartition('.')[2]}-{number}"] = case
    metafunc.parametrize("case", found.values(), ids=found)


@pytest.mark.timeout(0)  # each case has a bound of its own
def test_case(case: Case, subject: Subject) -> None:
    with (
        Path(__file__).open() as lock,
        tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as scratch,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX if case.alone else fcntl.LOCK_SH)
        outcome = tried(case, subject, Path(scratch))
    if outcome.violations:
        found = [f"{kind}: {text}" for kind, text in outcome.violations]
        pytest.fail("\n".join([case.name, *found]), pytrace=False)
    if outcome.skipped:
        pytest.skip(outcome.skipped)
