"""AMD's, Intel's and Apple's GPUs and TPUs, through modules that stand in for their libraries."""

import os
import re
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from builders import machine as build_machine
from examined_machines import examine
from msgspec.structs import replace
from trees import written

from workbench.export.view.machine import accelerator_sections
from workbench.machine import detect
from workbench.machine.amd import probe as amd_smi
from workbench.machine.nvidia.gpus import no_gpu
from workbench.machine.nvidia.nvml import GpuSample
from workbench.machine.nvidia.probe_client import start_probe
from workbench.machine.others import joined, other_gpus
from workbench.machine.packages.stack_query import torch_build
from workbench.machine.warnings import hardware_warnings
from workbench.process.line_process import Ended, QueryProcess
from workbench.records.machine import Gpu, Machine, Nvml, Package, Software
from workbench.records.reason import Reason

TORCH = """
__version__ = "2.13.0"
class version: hip, cuda, xpu = {hip!r}, None, None
class About:
    name, total_memory, major, minor = "AMD Instinct MI300X", 192 << 30, 9, 4
    pci_domain_id, pci_device_id = 0, 0
    def __init__(self, n): self.pci_bus_id = [0x45, 0x23][n]
class Part:
    def __init__(self, count): self.count = count
    def device_count(self): return self.count
    def get_device_properties(self, n): return About(n)
    def recommended_max_memory(self): return 8 << 30
print("noise")
cuda, xpu, mps = Part({cuda}), Part({xpu}), Part({mps})
"""
AMD_SMI = """
class AmdSmiException(Exception): pass
class Names:
    def __getattr__(self, name): return name
AmdSmiClkType = AmdSmiTemperatureType = AmdSmiTemperatureMetric = Names()
def amdsmi_init(): {init}
def amdsmi_get_processor_handles(): return [0x23, 0x45, 0x67]
def amdsmi_get_gpu_device_bdf(handle): return f"0000:{{handle:x}}:00.0"
def amdsmi_get_gpu_asic_info(handle): return {{"market_name": "MI300X", "vendor_id": "0x1002"}}
def amdsmi_get_gpu_driver_info(handle): return {{"driver_version": "6.12.12"}}
def amdsmi_get_gpu_vram_usage(handle): return {{"vram_total": 196592, "vram_used": handle}}
def amdsmi_get_power_info(handle):
    lacking = "N/A" if handle == 0x23 else 0xFFFF
    return {{"current_socket_power": lacking, "average_socket_power": handle}}
def amdsmi_get_clock_info(handle, kind):
    assert kind == "GFX"
    return {{"clk": 132, "max_clk": 2100}}
def amdsmi_get_gpu_activity(handle): return {{"gfx_activity": 7, "mm_activity": "N/A"}}
def amdsmi_get_temp_metric(handle, sensor, metric):
    raise AmdSmiException("not supported")
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose modules this process and its children find before the real ones."""
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("torch", "jax", "amdsmi"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return tmp_path


def torch(folder: Path, build: str, hip: str | None = None, **counts: int) -> None:
    (folder / "torch").mkdir()
    (folder / "torch/version.py").write_text(build)
    found = {"cuda": 0, "xpu": 0, "mps": 0, **counts}
    (folder / "torch/__init__.py").write_text(TORCH.format(hip=hip, **found))


def rocm(folder: Path) -> None:
    torch(folder, '__version__ = "2.13.0"\nhip = "7.0.1"\n', "7.0.1", cuda=2)


def smi(folder: Path, init: str = "pass") -> None:
    (folder / "amdsmi.py").write_text(AMD_SMI.format(init=init))


def test_rocm_and_amd_smi_are_joined_by_the_bus(stand_in: Path) -> None:
    rocm(stand_in)
    smi(stand_in)
    machine, software = detect()
    assert software.packages["torch"].detail == "ROCm 7.0"
    one, two, other = machine.gpus
    assert [one.device, two.device, other.device] == ["cuda:0", "cuda:1", None]
    assert [one.index, two.index, other.index] == [1, 0, 2]
    assert [one.pci_bus_id, one.power_w, two.power_w] == ["0000:45:00.0", 0x45, 0x23]
    assert [one.name, one.memory_total_bytes] == ["AMD Instinct MI300X", 192 << 30]
    assert [one.platform, one.driver_version] == ["ROCm 7.0.1", "6.12.12"]
    assert one.temperature_c is None and one.unavailable["temperature_c"] == amd_smi.NOT_GIVEN
    assert one.compute_capability is None, "CUDA's generations say nothing about AMD's"
    assert other.unavailable["device"].startswith("torch does not list it")
    assert "device" not in one.unavailable
    assert (machine.vendor, machine.watched) == ("amd", machine.gpus)

    found = {warning.code: warning for warning in hardware_warnings(machine, software)}
    assert "torch_without_cuda" not in found
    assert "ROCm 7.0.1, which is unproven" in found["unproven_device"].message
    sections = accelerator_sections(machine, software, None)
    assert sections[0].title == "GPU 1  AMD Instinct MI300X  (cuda:0)"
    facts = {fact.label: str(fact.text) for fact in sections[0].facts}
    assert "ROCm 7.0.1, unproven" in facts["platform"]
    checks = examine(machine, software, {}).checks
    assert any(c.name == "cuda:0" and "unproven" in c.message for c in checks)
    assert not any(check.name == "onnxruntime on the GPU" for check in checks)


def test_without_amd_smi_torch_alone_describes_them(stand_in: Path) -> None:
    rocm(stand_in)
    machine, _ = detect()
    assert [gpu.device for gpu in machine.gpus] == ["cuda:0", "cuda:1"]
    assert machine.gpus[0].unavailable == {"*": "only torch describes this device"}
    assert machine.watched == [] and no_gpu(machine) is None


def test_a_torch_that_gives_no_place_on_the_bus_doubles_no_card() -> None:
    gpu = Gpu(None, "cuda:0", None, None, "MI300X", platform="ROCm 6.3")
    card = Gpu(0, None, None, "0000:23:00.0", "MI300X", platform="ROCm")
    assert joined([gpu], [card]) == [gpu]


def test_cards_without_a_place_on_the_bus_are_all_listed() -> None:
    cards = [Gpu(index, None, None, None, "MI300X") for index in range(2)]
    assert joined([], cards) == cards


def test_a_card_without_a_build_for_it_says_so(stand_in: Path) -> None:
    smi(stand_in)
    machine, _ = detect()
    assert [gpu.device for gpu in machine.gpus] == [None] * 3
    reason = no_gpu(machine)
    assert amd_smi.NO_BUILD in reason.message and reason.hint is None


def test_a_card_that_no_library_knows_is_no_machine_without_a_gpu(tmp_path: Path) -> None:
    files = {}
    for slot, kind in (("c1", "0x120000"), ("05", "0x038000")):  # the latter in a processor
        folder = f"sys/bus/pci/devices/0000:{slot}:00.0"
        files |= {f"{folder}/vendor": "0x1002\n", f"{folder}/class": f"{kind}\n"}
    machine, software = detect(root=written(tmp_path, files))
    assert [gpu.pci_bus_id for gpu in machine.gpus] == ["0000:c1:00.0"]
    assert no_gpu(machine) == Reason("gpu_unusable", f"no GPU is usable: {amd_smi.NO_BUILD}")
    found = [c for c in examine(machine, software, {}).checks if amd_smi.NO_BUILD in c.message]
    assert [check.name for check in found] == ["0000:c1:00.0"]


@pytest.mark.parametrize(
    ("build", "counts", "device", "platform"),
    [("xpu = '20250301'", {"xpu": 1}, "xpu:0", "XPU"), ("hip = '6.4'", {"mps": 1}, "mps:0", "MPS")],
)
def test_intels_and_apples_gpus_have_torchs_own_names(
    stand_in: Path, build: str, counts: dict[str, int], device: str, platform: str
) -> None:
    torch(stand_in, build, **counts)
    (gpu,) = detect()[0].gpus
    assert (gpu.device, gpu.platform) == (device, platform)


def test_builds_are_named_for_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert torch_build("hip: Optional[str] = '6.4.43482'\n", "2.9") == "ROCm 6.4"
    assert torch_build("xpu = '20250301'\n", "2.9") == "XPU 20250301"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert torch_build("cuda = None\n", "2.9") == "macOS build (MPS)"


def test_a_library_that_fails_costs_its_own_devices_only(stand_in: Path) -> None:
    torch(stand_in, "hip = '7.0'", "7.0", cuda=1)
    (stand_in / "torch/__init__.py").write_text("raise ImportError('libamdhip64.so.7')")
    smi(stand_in, "raise AmdSmiException('driver not loaded')")
    assert detect()[0].gpus == []
    (sample,) = amd_smi.samples([0], every_s=0.0)
    assert "driver not loaded" in sample.reason.message


def test_an_answer_of_another_form_costs_its_own_devices_only(stand_in: Path) -> None:
    rocm(stand_in)
    smi(stand_in)
    text = (stand_in / "amdsmi.py").read_text()
    (stand_in / "amdsmi.py").write_text(text.replace('"MI300X"', '["MI300X"]'))
    machine, _ = detect()
    assert [(gpu.device, gpu.index) for gpu in machine.gpus] == [("cuda:0", None), ("cuda:1", None)]
    text = (stand_in / "torch/__init__.py").read_text()
    (stand_in / "torch/__init__.py").write_text(text.replace('"AMD Instinct MI300X"', "7"))
    assert detect()[0].gpus == []


def test_those_that_hang_are_waited_for_together(stand_in: Path, monkeypatch) -> None:
    rocm(stand_in)
    for module in ("torch/__init__.py", "amdsmi.py"):
        (stand_in / module).write_text("import signal\nsignal.pause()\n")
    waits, line = [], QueryProcess.line

    def noted(process: QueryProcess, deadline_s: float, *, since_start: bool) -> bytes | Ended:
        waits.append((deadline_s, since_start))
        return line(process, deadline_s, since_start=since_start)

    software = Software("3.11", "python", {"torch": Package("2.13", "ROCm 7.0")}, {})
    monkeypatch.setattr(QueryProcess, "line", noted)
    assert other_gpus(software, [], stand_in, None, 0.2) == []
    assert waits == [(0.2, True)] * 2, "one deadline for all"


def test_tpus_are_jaxs(stand_in: Path) -> None:
    (stand_in / "jax.py").write_text(
        "import types\n"
        "__version__ = '0.10'\n"
        "kinds = [('cpu', 'cpu'), ('tpu', 'TPU v5e')]\n"
        "def local_devices():\n"
        "    return [types.SimpleNamespace(platform=p, id=0, device_kind=k) for p, k in kinds]\n"
    )
    for name in ("jax", "libtpu"):
        folder = stand_in / f"{name}-0.10.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.10\n")
    machine, software = detect()
    (gpu,) = machine.gpus
    assert (gpu.device, gpu.name, gpu.platform) == ("tpu:0", "TPU v5e", "TPU")
    assert accelerator_sections(machine, software, None)[0].title.startswith("TPU  TPU v5e")
    assert "unproven_device" in {w.code for w in hardware_warnings(machine, software)}


def test_amd_smi_is_sampled_in_a_process_of_its_own(stand_in: Path) -> None:
    smi(stand_in)
    with closing(start_probe("sample", "0.01", "2", "0", vendor="amd")) as process:
        line = process.line(30.0)
    sample = msgspec.json.decode(line, type=GpuSample)
    assert [(gpu.index, gpu.power_w) for gpu in sample.gpus] == [(2, 0x67), (0, 0x23)]
    assert sample.gpus[0].unavailable == {"temperature_c": amd_smi.NOT_GIVEN}
    assert sample.gpus[0].memory_used_bytes == 0x67 << 20


def test_nvml_is_asked_where_it_works() -> None:
    amd = Gpu(0, "cuda:1", None, None, "MI300X", platform="ROCm 7.0")
    here: Machine = build_machine("cuda:0")
    both = replace(here, gpus=[*here.gpus, amd], nvml=Nvml(True))
    assert (both.vendor, both.watched) == ("nvidia", here.gpus)
    without = replace(both, nvml=Nvml(False))
    assert (without.vendor, without.watched) == ("amd", [amd])


def test_a_cuda_build_is_asked_of_nobody(stand_in: Path) -> None:
    torch(stand_in, "cuda = '13.0'", cuda=1)
    assert detect()[0].gpus == [], "libcuda lists them"
    software = Software("3.11", "python", {"torch": Package("2.13", "CPU build")}, {})
    assert not re.search("unproven", str(hardware_warnings(build_machine("cuda:0"), software)))
