"""The ceilings of a device as bars, on one scale for all devices."""

import builders
from msgspec.structs import replace

from workbench.export.view.ceilings import bars
from workbench.records.document import Ceilings


def two_devices(name: str | None = None) -> Ceilings:
    """A GPU ten times as fast as the CPU, `name` its model."""
    found = builders.ceilings("cpu", "cuda:0")
    cpu, gpu = found.devices
    faster = {precision: 10 * rate for precision, rate in cpu.peak_ops_per_s.items()}
    gpu = replace(gpu, name=name, peak_ops_per_s=faster)
    return replace(found, devices=[cpu, gpu])


def shares(found: Ceilings, device: str) -> dict[str, float | None]:
    return {label: share for label, share, _ in bars(found, device)}


def test_operations_and_bytes_have_a_scale_each_for_all_devices() -> None:
    cpu, gpu = (shares(two_devices(), device) for device in ("cpu", "cuda:0"))
    assert (cpu["FP32"], cpu["BF16"]) == (0.05, 0.1)
    assert (gpu["FP32"], gpu["BF16"]) == (0.5, 1.0)
    assert cpu["last-level cache"] == 1.0
    assert cpu["launch"] is None and cpu["ridge point"] is None
    assert "name" not in cpu and "threads" not in cpu


def test_a_datasheet_stands_below_what_was_measured_and_sets_the_scale() -> None:
    found = bars(two_devices("NVIDIA H200"), "cuda:0")
    labels = [label for label, _, _ in found]
    assert labels[:4] == ["FP32", "  datasheet", "BF16", "  datasheet"]
    assert found[3][1:] == (1.0, "989 TFLOP/s"), "its FP8 was not measured"
    assert shares(two_devices("NVIDIA H200"), "cpu")["BF16"] < 0.01
