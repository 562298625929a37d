"""Memory that a worker's allocator keeps between two calls, and the cost of page faults."""

import os
import platform
import subprocess
import sys

import pytest

from workbench.contract import FAULTING_FRACTION
from workbench.worker.allocator import Faulting

CALLS = """
import resource
from workbench.worker import allocator

{way}


def call():
    one, other = bytearray({mib} << 20), bytearray({mib} << 20)


call()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    call()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(mib: int, way: str) -> int:
    """Page faults of five calls that free two chunks each, in a process of their own."""
    variables = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    command = [sys.executable, "-c", CALLS.format(mib=mib, way=way)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
@pytest.mark.parametrize(("mib", "way"), [(22, "allocator.settle()"), (60, "allocator.keep()")])
def test_a_call_faults_in_no_memory_that_the_call_before_has_freed(mib: int, way: str) -> None:
    if (usual := faults(mib, "")) < 5_000:
        pytest.skip("huge pages, or a glibc that returns less")
    assert faults(mib, way) < usual / 10


def test_the_share_of_page_faults_is_large_where_memory_is_new() -> None:
    faulting, new = Faulting(), bytearray(100 << 20)
    assert 0.02 < faulting.metrics()[FAULTING_FRACTION] <= 1
    faulting = Faulting()
    assert sum(new[:: 1 << 20]) == 0  # it stays
    again = sum(range(3_000_000))
    assert again and faulting.metrics()[FAULTING_FRACTION] < 0.1
