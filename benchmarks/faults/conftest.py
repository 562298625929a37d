"""The options of `make faults`, which follow the folder, and the program that it tries to break."""

import sys

import pytest

from benchmarks.faults.subject import Subject


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=0, help="another one makes other cases")
    parser.addoption("--each", type=int, help="cases of each part, not half an hour of them")
    parser.addoption("--python", default=sys.executable, help="interpreter of another checkout")


@pytest.fixture(scope="session")
def subject(pytestconfig: pytest.Config) -> Subject:
    return Subject.of(pytestconfig.getoption("--python"))
