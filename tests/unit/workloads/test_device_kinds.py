"""The table of device kinds, and what follows from it."""

import pytest

from workbench.contract import COLUMNS, DEVICE_KINDS, Case, kind_of


def test_every_device_belongs_to_its_kind() -> None:
    assert [kind_of(d).name for d in ("cpu", "cuda:0", "cuda:12", "fake:0", "fake:0@8")] == [
        *("cpu", "cuda", "cuda", "fake", "fake")
    ]
    assert COLUMNS == ("cpu", "gpu")


@pytest.mark.parametrize("name", DEVICE_KINDS)
def test_a_row_is_consistent(name: str) -> None:
    kind = DEVICE_KINDS[name]
    assert kind.name == name
    assert kind.column in COLUMNS
    assert not (kind.simulated and not kind.on_host), "a simulated device computes on the CPU"
    assert not (kind.on_host and (kind.settle_s or kind.hidden_by or kind.nsight))


def test_a_kind_of_another_version_is_shown_as_a_gpu() -> None:
    assert Case("matmul", "npu:0", "torch", "fp32").device_kind == "gpu"
