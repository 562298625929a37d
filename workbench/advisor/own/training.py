"""The ways to train a user's module that race, and when each may start.

Pure functions of facts.  The search goes along one coordinate at a time: `candidates` starts with
precision and mode and no loader processes, `after` varies what leads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...contract import ParameterValue, kind_of
from ...machine.host.isa import lacking, native
from .candidates import COMPILE, NHWC, Proposal, Space

FUSED = "fused"
MODES = (NHWC, COMPILE, FUSED)  # in the order of a case's mode
WAITING = 0.02  # share of the time from which more loader processes may help
MOST_WORKERS = 16
LONGEST_STEP_S = 2.0  # of all batches that one timed step holds


@dataclass(frozen=True)
class TrainingSpace(Space):
    """The facts that decide which candidates there can be."""

    loader: bool = False  # whether it has a data set or loader
    compilers: tuple[str, ...] = ()  # kinds of devices, "cpu" and "gpu", that it can compile for
    impossible: Mapping[str, str] = field(default_factory=dict)  # why, by mode
    step_s: float = 0.0  # rough seconds of a training step on one batch


def candidates(space: TrainingSpace) -> tuple[list[Proposal], dict[str, str]]:
    """The proposals that start, the cheap first, and the reason for each that does not."""
    left_out = dict(space.impossible)
    own = space.facts.precision
    found = []
    if space.on_cpu:
        plain = Proposal("cpu", own, None, space.threads[0], _tuning(space, "cpu"))
        found += [replace(plain, threads=count) for count in space.threads]
        if own == "fp32" and native("bf16", space.cpu):
            found.append(replace(plain, precision="bf16"))
        elif own == "fp32":
            missing = lacking("bf16", space.cpu) or "known BF16 extension"
            left_out["cpu/bf16"] = f"this CPU has no {missing}, so BF16 would be emulated"
        found += with_modes(plain, space)
    for gpu in space.gpus:
        plain = Proposal(gpu, own, None, None, _tuning(space, gpu))
        reduced = ("tf32", "bf16", "fp16") if own == "fp32" else ()
        found += [replace(plain, precision=precision) for precision in (own, *reduced)]
        found += with_modes(replace(plain, precision="bf16" if reduced else own), space)
    for kind in ("cpu", "gpu"):
        if kind not in space.compilers:
            left_out[f"{kind}/compile"] = f"torch.compile finds no compiler for the {kind.upper()}"
    return _ordered(found, space), left_out


def with_modes(leader: Proposal, space: TrainingSpace) -> Iterator[Proposal]:
    """The leader with one more mode, for each that can be and that it has not yet."""
    present = (leader.mode or "").split("+")
    compiles = kind_of(leader.device).column in space.compilers
    possible = {FUSED: True, NHWC: space.facts.convolves, COMPILE: compiles}
    for mode in possible:
        if possible[mode] and mode not in space.impossible and mode not in present:
            yield replace(leader, mode="+".join(m for m in MODES if m in (*present, mode)))


def after(leader: Proposal, space: TrainingSpace, waiting: float = 1.0) -> list[Proposal]:
    """The proposals that differ from the leader of a device in one respect.

    `waiting` is the share of its time in which the leader waits for data: a leader that does not
    wait needs no loader processes.  While one waits, precision and mode hardly show, so those of
    the start are tried again with the loader settings that lead.
    """
    found = list(with_modes(leader, space))
    loading = int(leader.tuning.get("workers", 0))
    if space.loader and waiting >= WAITING:
        found += [_loading(leader, workers=count) for count in workers(space) if count != loading]
        if "pin" in leader.tuning:
            found.append(_loading(leader, pin=1 - int(leader.tuning["pin"])))
    if loading:
        started, _ = candidates(space)
        again = [replace(each, tuning=leader.tuning) for each in started]
        found += [each for each in again if each.device == leader.device and each != leader]
    return _ordered(found, space)


def workers(space: TrainingSpace) -> list[int]:
    """Numbers of loader processes: powers of two, since one timed step holds whole rounds."""
    bound = min(space.cpu.effective_cores, MOST_WORKERS)
    if space.step_s:
        bound = min(bound, max(2, int(LONGEST_STEP_S / space.step_s)))
    largest = 1 << (bound.bit_length() - 1)
    return sorted({count for count in (0, 2, 4, largest) if count <= bound})


def batches(space: TrainingSpace) -> int:
    """Batches in one timed step of every candidate: a round of the largest number of loaders.

    Loaders that are the limit finish their batches together: of four steps one would wait and three
    would not, and a median of single steps would hide the wait.
    """
    return max(1, *workers(space)) if space.loader else 1


def _tuning(space: TrainingSpace, device: str) -> dict[str, ParameterValue]:
    if not space.loader:
        return {}
    return {"workers": 0} if kind_of(device).on_host else {"workers": 0, "pin": 0}


def _loading(leader: Proposal, **settings: int) -> Proposal:
    return replace(leader, tuning={**leader.tuning, **settings})


def _ordered(found: list[Proposal], space: Space) -> list[Proposal]:
    """Each proposal once that the request admits, those that compile last."""
    once = [each for place, each in enumerate(found) if each not in found[:place]]
    return sorted(filter(space.admits, once), key=lambda each: COMPILE in (each.mode or ""))
