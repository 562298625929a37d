"""Disturbances during a measurement, read from a kernel's files that change."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest
from hypothesis import given, strategies as st
from trees import written

from workbench.machine.host import disturbance
from workbench.machine.host.cgroup import stat_value
from workbench.machine.host.disturbance import DisturbanceMonitor

CGROUP = "sys/fs/cgroup/pod/cpu.stat"


def stat(stolen: int, idle: int, cores: int = 2) -> str:
    rows = [f"cpu{n} 100 0 50 {idle} 0 0 0 {stolen} 7 7" for n in range(cores)]
    return "\n".join(["cpu  1 2 3 4 5 6 7 8 9 10", *rows, "intr 5 0 0", "ctxt 77", "btime 1"])


def process(name: str, ticks: int) -> str:
    rest = "0 " * 30
    return f"7 ({name}) R 1 7 7 0 -1 4194304 0 0 0 0 {ticks} 5 900 900 20 0 1 0 1 1 1 {rest}"


@pytest.fixture
def calm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine of two cores in a container with a quota, on which nothing happens."""
    monkeypatch.setattr(DisturbanceMonitor, "_foreign_cores", lambda self, now: 0.0)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "proc"))
    monkeypatch.setattr(disturbance, "allowed_cores", lambda: [0, 1])
    written(
        tmp_path,
        {
            "proc/stat": stat(0, 1000),
            "proc/1/stat": process("init", 5),
            "proc/vmstat": "pgpgin 1\npswpin 10\npswpout 20\n",
            "proc/self/cgroup": "0::/pod\n",
            "proc/self/mountinfo": "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            CGROUP: "usage_usec 5\nnr_periods 100\nnr_throttled 7\nthrottled_usec 9\n",
            "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "3\n",
        },
    )
    psutil.process_iter.cache_clear()
    yield tmp_path
    psutil.process_iter.cache_clear()


def after(root: Path, changed: dict[str, str], cores: int = 2) -> dict[str, str]:
    """Code -> message of the warnings once the files have changed."""
    monitor = DisturbanceMonitor(cores, list, root=root)
    written(root, changed)
    warnings = monitor.warnings("training")
    assert all(w.subject == "training" and w.remedy for w in warnings)
    return {w.code: w.message for w in warnings}


def test_nothing_is_said_of_a_machine_on_which_nothing_happened(calm: Path) -> None:
    assert after(calm, {}) == {}


def test_nothing_is_said_without_proc(calm: Path) -> None:
    shutil.rmtree(calm / "proc")
    (calm / "proc").mkdir()
    psutil.process_iter.cache_clear()
    assert after(calm, {}) == {}


@pytest.mark.parametrize(
    ("file", "text", "code", "size"),
    [
        ("proc/stat", stat(30, 1070), "stolen_time", "30%"),
        ("proc/vmstat", "pswpin 200\npswpout 300\n", "swapping", "470 pages"),
        (CGROUP, "nr_periods 150\nnr_throttled 32\n", "cgroup_throttled", "50%"),
        (
            "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count",
            "8\n",
            "cpu_throttled",
            "slowed down to stay cool",
        ),
    ],
)
def test_each_disturbance_is_a_warning_with_its_size(calm, file, text, code, size) -> None:
    found = after(calm, {file: text})
    assert list(found) == [code]
    assert size in found[code]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("proc/stat", stat(1, 1099)),
        ("proc/vmstat", "pswpin 20\npswpout 30\n"),
        (CGROUP, "nr_periods 200\nnr_throttled 8\n"),
    ],
)
def test_what_any_living_system_does_is_no_warning(calm: Path, file: str, text: str) -> None:
    assert after(calm, {file: text}) == {}


def test_what_happens_during_a_pause_does_not_count(calm: Path) -> None:
    monitor = DisturbanceMonitor(2, list, root=calm)
    written(calm, {"proc/vmstat": "pswpin 200\npswpout 300\n"})
    with monitor.paused():
        written(calm, {"proc/vmstat": "pswpin 900\npswpout 900\n", "proc/stat": stat(30, 1070)})
    (warning,) = monitor.warnings("training")
    assert (warning.code, "470 pages" in warning.message) == ("swapping", True)


def test_a_quota_of_a_group_further_up_counts_as_well(calm: Path) -> None:
    above = "sys/fs/cgroup/cpu.stat"
    written(calm, {above: "nr_periods 10\nnr_throttled 0\n"})
    assert "cgroup_throttled" in after(calm, {above: "nr_periods 20\nnr_throttled 9\n"})


def test_time_stolen_from_cores_that_are_not_ours_does_not_count(calm: Path) -> None:
    written(calm, {"proc/stat": stat(0, 1000, cores=4)})
    others = stat(0, 1100, cores=2) + "\ncpu2 100 0 50 1000 0 0 0 900 0 0"
    assert after(calm, {"proc/stat": others}) == {}


@pytest.mark.parametrize(("cores", "code"), [(1.4, "busy_machine"), (1.8, "overloaded_machine")])
def test_other_programs_are_a_warning_with_the_cores_they_used(
    calm: Path, monkeypatch, cores: float, code: str
) -> None:
    monkeypatch.setattr(DisturbanceMonitor, "_foreign_cores", lambda self, now: cores)
    found = after(calm, {})
    assert list(found) == [code]
    assert f"{cores} of 2 cores" in found[code]


def test_one_core_is_no_cores(calm: Path, monkeypatch) -> None:
    monkeypatch.setattr(DisturbanceMonitor, "_foreign_cores", lambda self, now: 0.5)
    monkeypatch.setattr(disturbance, "allowed_cores", lambda: [0])
    assert after(calm, {}, cores=1) == {"busy_machine": "other processes used 0.5 of 1 core"}


def test_the_programs_that_took_most_of_it_are_named(calm: Path, monkeypatch) -> None:
    monkeypatch.setattr(DisturbanceMonitor, "_foreign_cores", lambda self, now: 2.0)

    written(calm, {"proc/7/stat": process("make (2)", 5000), "proc/9/stat": process("worker", 0)})
    monitor = DisturbanceMonitor(2, lambda: [9], root=calm)
    ended = {7: ("make (2)", 5900), 8: ("make (2)", 300), 9: ("worker", 900), 11: ("sh", 4)}
    written(calm, {f"proc/{pid}/stat": process(*each) for pid, each in ended.items()})
    written(calm, {"proc/stat": stat(0, 2000)})  # 1000 ticks later
    (warning,) = monitor.warnings("training")
    assert "(mostly make (2))" in warning.message


def test_the_cores_of_others_are_never_more_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 16 ms between two readings of ticks of 10 ms came 3.2 of 2 cores."""
    read = {"s": 0.0, "busy_s": 0.0}
    monkeypatch.setattr(disturbance.time, "monotonic", lambda: read["s"])
    monkeypatch.setattr(disturbance, "allowed_cores", lambda: [0, 1])
    monkeypatch.setattr(
        disturbance, "core_times", lambda _: {0: SimpleNamespace(user=read["busy_s"])}
    )

    def after_a_while(s: float, busy_s: float) -> float:
        read.update(s=0.0, busy_s=0.0)
        monitor = DisturbanceMonitor(2, list)
        read.update(s=s, busy_s=busy_s)
        return monitor._foreign_cores(monitor._read())

    found = [after_a_while(*each) for each in ((0.016, 0.05), (1.0, 5.0), (1.0, 2.1), (1.0, 1.4))]
    assert found == [0.0, 0.0, 2.0, 1.4]


def test_a_kernel_that_says_nothing_is_no_disturbance(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(psutil, "cpu_times", Mock(side_effect=FileNotFoundError("/proc/stat")))
    assert set(after(tmp_path, {})) <= {"busy_machine"}


@given(st.text())
def test_any_text_is_read_as_counts_that_are_there_or_not(text: str) -> None:
    assert stat_value(f"pswpin 1\n{text}", "pswpin") == 1
