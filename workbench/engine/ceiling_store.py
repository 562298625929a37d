"""Ceilings on disk, one file for each fingerprint of machine and software."""

import hashlib
import json
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import msgspec

from ..files import read, write
from ..machine.packages.software import OF_A_JOB
from ..records.document import Ceilings, DeviceCeilings
from ..records.machine import Machine, Software
from ..report import journal
from ..report.plausible import absurdity

MOST_BYTES = 1 << 20  # hundreds of devices
METHOD = 4  # version of the measurement; since 4 `unavailable` leaves out what lacked time
LATENCIES = ("launch_s", "step_latency_s")  # lower is better


def fingerprint(machine: Machine, software: Software) -> str:
    """Sixteen hex digits that change with anything a ceiling depends on."""
    cpu = machine.cpu
    parts = [
        METHOD,
        [cpu.model, cpu.architecture, cpu.logical_cores, cpu.effective_cores],
        cpu.usable_physical_cores,  # eight logical cores may be four physical ones or eight
        [round(machine.memory.total_bytes / 2**30)],
        [[g.uuid, g.name, g.driver_version, g.mig, g.ecc] for g in machine.gpus if not g.simulated],
        machine.mps,
        sorted((name, package.version) for name, package in software.packages.items()),
        sorted(each for each in software.environment.items() if each[0] not in OF_A_JOB),
        machine.os.release,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def folder() -> Path:
    return journal.runs_folder().with_name("ceilings")


def load(fingerprint: str) -> Ceilings | None:
    """The ceilings kept under a fingerprint; None if there are none or they cannot be read."""
    with suppress(OSError, *journal.UNREADABLE):
        content = read.whole(folder() / f"{fingerprint}.json", MOST_BYTES)
        kept = msgspec.json.decode(content, type=Ceilings)
        return None if absurdity(kept) else kept
    return None


def is_whole(kept: Ceilings, machine: Machine) -> bool:
    """Whether `kept` was measured to the end, on the CPU and each model of GPU of `machine`."""
    models = {gpu.name for gpu in machine.by_device.values() if not gpu.simulated}
    known = {name for device in kept.devices for name in (device.device, device.name)}
    return kept.complete and {"cpu", *models} <= known


def merged(old: Ceilings | None, new: Ceilings, keep_better: Collection[str] = ()) -> Ceilings:
    """`new`, with missing values from `old`, and in the fields `keep_better` the better of both."""
    if old is None:
        return new
    known = {device.device: device for device in old.devices}
    devices = [
        _filled(device, known.pop(device.device, device), keep_better) for device in new.devices
    ]
    devices = sorted([*devices, *known.values()], key=lambda device: device.device != "cpu")
    return msgspec.structs.replace(
        new,
        complete=old.complete or new.complete,
        devices=devices,
        since=None if _values(devices) == _values(new.devices) else old.since or old.measured_at,
    )


def _values(devices: list[DeviceCeilings]) -> list[DeviceCeilings]:
    return [msgspec.structs.replace(device, unavailable={}) for device in devices]


def _filled(
    new: DeviceCeilings, old: DeviceCeilings, keep_better: Collection[str]
) -> DeviceCeilings:
    fields = msgspec.to_builtins(old)
    for name, value in msgspec.to_builtins(new).items():
        kept = fields[name]
        if isinstance(value, dict):
            fields[name] = {**kept, **value}
            if name in keep_better:
                fields[name] |= {key: max(kept[key], value[key]) for key in kept.keys() & value}
        elif name in keep_better and value and kept:
            fields[name] = (min if name in LATENCIES else max)(value, kept)
        else:
            fields[name] = value or kept
    for known in fields["peak_ops_per_s"]:
        fields["unavailable"].pop(known, None)
    return msgspec.convert(fields, DeviceCeilings)


def save(ceilings: Ceilings) -> None:
    """Keep the ceilings for later runs; if that fails, each run measures them again."""
    with suppress(OSError):
        folder().mkdir(parents=True, exist_ok=True)
        write.replace(folder() / f"{ceilings.fingerprint}.json", msgspec.json.encode(ceilings))
