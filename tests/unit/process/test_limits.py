"""The bounds of a process, as the kernel keeps them."""

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.process.children import limit

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits are Linux's")


@pytest.fixture
def pid() -> Iterator[int]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        yield process.pid


def test_named_bounds_hold_and_none_is_no_bound(pid: int) -> None:
    before = resource.prlimit(pid, resource.RLIMIT_DATA)
    limit(pid, DATA=None, FSIZE=1 << 20, CORE=0)
    assert resource.prlimit(pid, resource.RLIMIT_FSIZE) == (1 << 20, 1 << 20)
    assert resource.prlimit(pid, resource.RLIMIT_CORE) == (0, 0)
    assert resource.prlimit(pid, resource.RLIMIT_DATA) == before
    assert Path(f"/proc/{pid}/oom_score_adj").read_text() == "1000\n"


def test_a_process_that_is_gone_is_no_error() -> None:
    limit(2**22 + 1, DATA=1)
