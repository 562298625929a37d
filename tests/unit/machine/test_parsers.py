"""Whatever the kernel's files hold, the parsers answer and never raise."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from workbench.machine.host import cgroup, cpuinfo, memory, topology
from workbench.machine.host.cpu import job_limit, tightest
from workbench.machine.host.sysfs import parse_int
from workbench.machine.nvidia.gpu_fields import normalise_bus_id
from workbench.machine.nvidia.nvml_fields import clock_event_names
from workbench.process.cores import cpulist
from workbench.records.machine import CoreLimit

anything = st.text()
lines = st.lists(
    st.one_of(
        st.text(max_size=30),
        st.builds("{}: {}".format, st.text(max_size=9), st.text(max_size=9)),
        st.builds("{}:{}:/{}".format, st.integers(), st.text(max_size=5), st.text(max_size=9)),
        st.just("processor : 0"),
        st.just("physical id : 0"),
        st.just("Features : asimd"),
        st.just("31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"),
    )
).map("\n".join)


@given(st.one_of(anything, lines))
def test_no_text_upsets_a_parser(text: str) -> None:
    blocks = cpuinfo.parse_cpuinfo(text)
    cpuinfo.isa(blocks)
    cpuinfo.model(blocks)
    cpuinfo.vendor(blocks)
    cpuinfo.sockets_and_cores(blocks)
    cgroup.parse_membership(text)
    cgroup.parse_mounts(text)
    memory.parse_meminfo(text)
    topology.parse_size(text)
    normalise_bus_id(text)
    value = parse_int(text)
    assert value is None or abs(value) < 2**64


@given(st.one_of(anything, st.from_regex(r"\d{1,30}(-\d{1,30})?(,\d+(-\d+)?)*", fullmatch=True)))
def test_a_cpulist_is_read_or_refused(text: str) -> None:
    assert all(0 <= cpu < 100_000 for cpu in cpulist(text))


@given(
    st.one_of(anything, st.just("max"), st.integers().map(str)),
    st.one_of(anything, st.integers().map(str)),
)
def test_a_quota_is_a_positive_number_or_none(quota: str, period: str) -> None:
    cores = cgroup.parse_quota(f"{quota} {period}")
    assert cores is None or (cores > 0 and math.isfinite(cores))


@given(
    st.integers(1, 4096),
    st.lists(
        st.tuples(
            st.sampled_from(["affinity", "cgroup", "slurm"]), st.floats(1e-6, 1e6, allow_nan=False)
        )
    ),
)
def test_effective_cores_lie_between_one_and_all(logical, more) -> None:
    limits = [CoreLimit("logical", float(logical), "test")]
    limits += [CoreLimit(name, cores, "test") for name, cores in more]
    effective, limited_by = tightest(limits)
    assert 1 <= effective <= logical
    if effective < logical:
        assert any(
            limit.name == limited_by and max(1, math.floor(limit.cores)) == effective
            for limit in limits
        )
    else:
        assert limited_by == "logical"


@given(st.dictionaries(st.sampled_from(["SLURM_JOB_ID", "SLURM_CPUS_PER_TASK"]), anything))
def test_variables_of_a_job_never_upset(environ: dict[str, str]) -> None:
    limit = job_limit(environ)
    assert limit is None or limit.cores >= 1


@given(st.text(alphabet="/.a\0 \\"), st.text(alphabet="/.a\0 \\"))
def test_odd_group_paths_never_leave_the_mount(path: str, mount: str) -> None:
    parts = cgroup._below(path, mount)
    assert ".." not in parts
    assert all(part and "/" not in part for part in parts)


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (cpulist, "0-3,8", {0, 1, 2, 3, 8}),
        (cpulist, "0", {0}),
        *((cpulist, text, set()) for text in ("", "3-1", "0-99999999999", "0-3:2/4", "a-b")),
        (topology.parse_size, "32K", 32768),
        (topology.parse_size, "1M", 1048576),
        *((topology.parse_size, text, None) for text in ("0K", "", "K")),
        (normalise_bus_id, "00000000:18:00.0", "0000:18:00.0"),  # NVML's and CUDA's become alike
        (normalise_bus_id, "0000:18:00.0", "0000:18:00.0"),
        (normalise_bus_id, "00010001:AF:1F.7", "10001:af:1f.7"),
        (normalise_bus_id, "18:00", "0000:18:00.0"),
        (normalise_bus_id, "N/A", None),
    ],
)
def test_texts_and_what_is_read(parse: Callable[[str], object], text: str, expected) -> None:
    assert parse(text) == expected


def test_clock_events_are_named_and_unknown_bits_shown() -> None:
    assert clock_event_names(0) == []
    assert clock_event_names(0x44) == ["sw_power_cap", "hw_thermal_slowdown"]
    assert clock_event_names(0x8000_0000_0000_0001) == ["gpu_idle", "bit_0x8000000000000000"]
