"""The kinds of devices that can be measured."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DeviceKind:
    """Properties that all devices of a kind share."""

    name: str  # `:NUMBER` follows it in the name of a device if `numbered`
    column: str  # "cpu" or "gpu": the side of the comparison it is on
    numbered: bool = True
    on_host: bool = False  # computes on the CPU, in the host's memory, timed by the host's clock
    simulated: bool = False  # requested as NAME:NUMBER@SPEED; its results are never recorded
    nsight: bool = False  # can be traced by NVIDIA Nsight Systems and CUPTI
    settle_s: float = 0.0  # longest lead-in, in which clocks rise after an idle turn
    hidden_by: str = ""  # environment variable that hides these devices when set to ""
    word: str = "GPU"  # its name in a verdict


DEVICE_KINDS = {
    kind.name: kind
    for kind in (
        DeviceKind("cpu", "cpu", numbered=False, on_host=True),
        # Also AMD's GPUs, which a torch for ROCm calls by this name.
        DeviceKind("cuda", "gpu", nsight=True, settle_s=0.25, hidden_by="CUDA_VISIBLE_DEVICES"),
        DeviceKind("xpu", "gpu", settle_s=0.25),  # Intel's GPUs
        DeviceKind("mps", "gpu", settle_s=0.25),  # Apple's GPU
        DeviceKind("tpu", "gpu", word="TPU"),  # Google's, by JAX
        # For tests: poses as a GPU of a given speed.
        DeviceKind("fake", "gpu", on_host=True, simulated=True),
    )
}
# A kind that only another version knows, in its documents: shown, never measured.
OTHER_KIND = DeviceKind("", "gpu", numbered=False, on_host=True)
PRICES = 1e-6, 1e9  # bounds per hour: others are typos, and products with them may overflow
COLUMNS = tuple(dict.fromkeys(kind.column for kind in DEVICE_KINDS.values()))


def kind_of(device: str) -> DeviceKind:
    """The kind of a device such as `cpu`, `cuda:0` or `fake:0`."""
    return DEVICE_KINDS.get(device.partition(":")[0], OTHER_KIND)
