"""Machines with GPUs in all conditions: what each command says of them, and its exit code."""

import json
from typing import Any

import msgspec
import pytest
from stub_driver import StubDriver

from screens.pages.hardware import sections
from workbench.export.view.machine import accelerator_sections
from workbench.machine.snapshots import Snapshot
from workbench.records.machine import Machine, Software

# name -> driver library, settings, what must be said of it
SCENARIOS: dict[str, tuple[str, dict[str, str], str]] = {
    "one card": ("nvml", {}, "NVIDIA H200"),
    "eight cards": ("nvml", {"NVML_STUB_GPUS": "8"}, "NVIDIA H200"),
    "memory shared with the system": (
        "nvml",
        {"NVML_STUB": "nvmlDeviceGetMemoryInfo_v2=3;nvmlDeviceGetMemoryInfo=zero"},
        "system memory",
    ),
    "a driver of 2019": ("old_nvml", {}, "this driver lacks the function"),
    "library and module of two versions": ("nvml", {"NVML_STUB": "nvmlInitWithFlags=18"}, "reboot"),
    "one of two cards lost": (
        "nvml",
        {"NVML_STUB_GPUS": "2", "NVML_STUB": "nvmlDeviceGetHandleByIndex_v2@1=15"},
        "fallen off the bus",
    ),
    "a card that crashes the process that asks": (
        "nvml",
        {"NVML_STUB": "nvmlDeviceGetName@0=segv"},
        "SIGSEGV",
    ),
    "a name that is no text": ("nvml", {"NVML_STUB": "nvmlDeviceGetName=badutf8"}, "UTF-8"),
}


def driver(stub: StubDriver, name: str) -> dict[str, str]:
    library, settings, _ = SCENARIOS[name]
    return {**settings, "LD_LIBRARY_PATH": stub.environ(library)["LD_LIBRARY_PATH"]}


def shown(detected: dict[str, Any]) -> str:
    """The hardware screen's half of the GPUs, on one line."""
    machine = msgspec.convert(detected["machine"], Machine)
    software = msgspec.convert(detected["software"], Software)
    found = sections(accelerator_sections(machine, software, None), 70)
    return " ".join(" ".join(line.plain for line in found).split())


@pytest.mark.parametrize("name", SCENARIOS)
def test_detect_and_the_hardware_screen_tell_each_condition(cli, stub, name: str) -> None:
    done = cli("detect", "--json", **driver(stub, name))
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    msgspec.convert(found["software"], Software)
    expected = SCENARIOS[name][2]
    assert expected in done.stdout
    assert expected.split()[0] in shown(found)
    for gpu in found["machine"]["gpus"]:
        absent = {field for field, value in gpu.items() if value is None}
        known = {"device", "uuid", "name", "pci_bus_id", "worker_cores", "l2_cache_bytes"}
        known |= {"platform"}  # only GPUs of other makers have one
        assert absent <= {*gpu["unavailable"], *known} | (
            set(gpu) if "*" in gpu["unavailable"] else set()
        )


@pytest.mark.parametrize(
    "name",
    [
        "library and module of two versions",
        "one of two cards lost",
        "a card that crashes the process that asks",
    ],
)
def test_watch_goes_on_whatever_the_condition(cli, stub: StubDriver, name: str) -> None:
    done = cli("watch", "--json", "--count", "2", "--every", "0.5", **driver(stub, name))
    assert (done.returncode, done.stderr) == (0, "")
    looks = [msgspec.json.decode(line, type=Snapshot) for line in done.stdout.splitlines()]
    assert len(looks) == 2
    assert all(look.host.memory_available_bytes for look in looks)


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("eight cards", "torch on the GPU"),  # the stub's CUDA is none that torch could use
        ("library and module of two versions", "driver"),
        ("one of two cards lost", "gpu 1"),
    ],
)
def test_the_doctor_fails_where_something_cannot_work(cli, stub, name: str, check: str) -> None:
    settings = driver(stub, name)
    settings["LD_LIBRARY_PATH"] += f":{stub.folder / 'cuda'}"
    if name == "library and module of two versions":
        settings["LD_LIBRARY_PATH"] = stub.environ("nvml")["LD_LIBRARY_PATH"]
    done = cli("doctor", "--json", **settings)
    assert (done.returncode, done.stderr) == (1, "")
    failed = [c["name"] for c in json.loads(done.stdout)["checks"] if c["status"] == "fail"]
    assert check in failed


def test_a_card_that_is_lost_while_it_is_watched(cli, stub: StubDriver) -> None:
    later = "nvmlDeviceGetPowerUsage@0+2=15;nvmlDeviceGetTemperatureV@0+2=15"
    path = stub.environ("nvml")["LD_LIBRARY_PATH"]
    done = cli(
        *("watch", "--json", "--count", "5", "--every", "0.5"),
        LD_LIBRARY_PATH=path,
        NVML_STUB=later,
    )
    looks = [msgspec.json.decode(line, type=Snapshot) for line in done.stdout.splitlines()]
    powers = [gpu.power_w for look in looks for gpu in look.gpus]
    assert 76.5 in powers and powers[-1] is None
    assert "fallen off the bus" in looks[-1].gpus[0].unavailable["power_w"]


def test_an_instance_of_a_card_has_no_power_of_its_own(cli, stub: StubDriver) -> None:
    path = stub.environ("nvml", "cuda")["LD_LIBRARY_PATH"]
    instance = {"LD_LIBRARY_PATH": path, "CUDA_STUB": "cuDeviceGetUuid_v2=mig"}
    for settings, expected in ((instance, None), ({"LD_LIBRARY_PATH": path}, 76.5)):
        done = cli("watch", "--json", "--count", "2", "--every", "0.5", **settings)
        looks = [msgspec.json.decode(line, type=Snapshot) for line in done.stdout.splitlines()]
        [card] = looks[-1].gpus
        assert (card.power_w, card.energy_j is None) == (expected, expected is None)
        assert ("whole GPU" in card.unavailable.get("energy_j", "")) == (expected is None)
