"""A model in a folder of its own."""

from pathlib import Path

import pytest
from lab_case import Case


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)
