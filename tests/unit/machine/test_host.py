"""The CPU's readings from a kernel's files, there or not."""

from pathlib import Path

import psutil
import pytest
from trees import written

from workbench.machine.host import readings as host
from workbench.machine.host.readings import HostReader


def stat(busy: int, idle: int) -> str:
    rest = f"{busy} 0 0 {idle} 0 0 0 0 0 0"
    return f"cpu  1 1 1 1 1 1 1 1 1 1\ncpu0 {rest}\ncpu1 {rest}\n"


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of two cores that shows everything."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "proc"))
    monkeypatch.setattr(host, "allowed_cores", lambda: [0, 1])
    written(
        tmp_path,
        {
            "proc/stat": stat(100, 100),
            "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 400 kB\n",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "3000000\n",
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "2000000\n",
            "sys/class/hwmon/hwmon0/name": "nvme\n",
            "sys/class/hwmon/hwmon0/temp1_input": "99000\n",
            "sys/class/hwmon/hwmon1/name": "coretemp\n",
            "sys/class/hwmon/hwmon1/temp1_input": "51000\n",
            "sys/class/hwmon/hwmon1/temp2_input": "55000\n",
            "sys/class/powercap/intel-rapl:0/energy_uj": "1000000\n",
            "sys/class/powercap/intel-rapl:0:0/energy_uj": "77\n",
            "sys/class/powercap/intel-rapl:1/energy_uj": "2000000\n",
            "sys/class/powercap/intel-rapl:2/energy_uj": "9000000000\n",
            "sys/class/powercap/intel-rapl:2/name": "psys\n",
        },
    )
    return tmp_path


def test_everything_that_is_shown_is_read(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 12.0])
    monkeypatch.setattr(host.time, "monotonic", lambda: next(clock))
    reader = HostReader(root=full)
    written(
        full,
        {
            "proc/stat": stat(130, 170),
            "sys/class/powercap/intel-rapl:0/energy_uj": "61000000\n",
            "sys/class/powercap/intel-rapl:1/energy_uj": "42000000\n",
        },
    )
    found = reader.read()
    assert found.unavailable == {}
    assert found.utilization_percent == pytest.approx(30.0)
    assert found.frequency_mhz == 3000.0, "the other core is idle"
    assert found.temperature_c == 55.0
    assert found.power_w == pytest.approx(50.0)
    assert found.memory_available_bytes == 400 * 1024


def test_only_our_cores_count(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "allowed_cores", lambda: [0])
    reader = HostReader(root=full)
    written(
        full, {"proc/stat": "cpu 1\ncpu0 100 0 0 200 0 0 0 0 0 0\ncpu1 999 0 0 100 0 0 0 0 0 0\n"}
    )
    found = reader.read()
    assert (found.utilization_percent, found.frequency_mhz) == (0.0, 3000.0)


def test_a_container_whose_cores_are_numbered_anew_is_read(full: Path, monkeypatch) -> None:
    monkeypatch.setattr(host, "allowed_cores", lambda: [2, 24])
    reader = HostReader(root=full)
    written(full, {"proc/stat": stat(130, 170)})
    assert reader.read().utilization_percent == pytest.approx(30.0)


def test_each_absence_has_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "proc"))
    found = HostReader(root=tmp_path).read()
    known = ("unavailable", "memory_available_bytes")  # the C library knows the memory
    readings = [f for f in found.__struct_fields__ if f not in known]
    assert all(getattr(found, field) is None for field in readings)
    assert set(found.unavailable) == set(readings)


def test_an_energy_counter_that_wraps_is_not_hidden_by_that_of_the_other_package(full) -> None:
    reader = HostReader(root=full)
    written(
        full,
        {
            "sys/class/powercap/intel-rapl:0/energy_uj": "5\n",
            "sys/class/powercap/intel-rapl:1/energy_uj": "44000000\n",
        },
    )
    found = reader.read()
    assert found.power_w is None and "anew" in found.unavailable["power_w"]


def test_over_a_long_interval_the_power_is_unknown(full: Path, monkeypatch) -> None:
    clock = iter([10.0, 130.0])
    monkeypatch.setattr(host.time, "monotonic", lambda: next(clock))
    reader = HostReader(root=full)
    written(full, {"sys/class/powercap/intel-rapl:0/energy_uj": "4000000000\n"})
    found = reader.read()
    assert found.power_w is None and "anew" in found.unavailable["power_w"]
