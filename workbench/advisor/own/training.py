"""The ways to train a user's module that race, one setting at a time."""

from collections.abc import Iterator
from dataclasses import replace

from ...contract import HALF, Case, ParameterValue, kind_of
from ...records.code import CodeFacts
from .candidates import COMPILE, GRAPH, KEEP, NHWC, CodeSpace, as_written, quick_changes, way

FUSED = "fused"
MODES = (NHWC, COMPILE, FUSED, KEEP)  # in the order of a case's mode
WORKERS_JOIN_FROM = 0.02  # share of the time that waits for data
MOST_WORKERS = 16
LONGEST_SAMPLE_S = 2.0


def start(space: CodeSpace) -> list[Case]:
    """The code as written and each change that is quick to prepare, without loader processes."""
    facts = space.facts
    found = [*as_written(space), *quick_changes(space)]
    found += [
        way(device, facts.precision, FUSED, count)
        for device, count in space.devices.items()
        if FUSED not in _impossible(device, facts)
    ]
    able = (each for each in found if each.mode != GRAPH and _is_promising(each, space))
    return [replace(each, tuning=_tuning(space, each.device)) for each in able]


def _is_promising(case: Case, space: CodeSpace) -> bool:
    """False for FP16 on the CPU by autocast, unless it is asked for, and for FP32 in place of the
    weights' 16 bits, which trains something else.

    Small gradients vanish in FP16, and those of convolutions have no fast kernels: a step took 116
    times as long as in FP32 on a Xeon with AVX512-FP16 (torch 2.13), which runs FP16 natively.
    """
    own = space.facts.precision
    if own in HALF and case.precision != own:
        return False
    is_half = case.precision == "fp16" != own
    return not (is_half and kind_of(case.device).on_host) or bool(space.request.precisions)


def after(leader: Case, space: CodeSpace, batch: int | None, waiting: float) -> list[Case]:
    """The cases that differ from the leader of a device in one respect.

    `waiting` is the share of its time (0 to 1) in which the leader waits for data.  Without a wait
    it needs no loader processes.  A wait hides the effect of precision and mode, so those of the
    start are tried again with the leader's loader settings.
    """
    found = list(_with_modes(leader, space))
    if space.facts.data and waiting >= WORKERS_JOIN_FROM:
        counts = workers(space, batch, leader.device)
        found += [_loading(leader, workers=count) for count in counts]
        if "pin" in leader.tuning:
            found.append(_loading(leader, pin=1 - int(leader.tuning["pin"])))
    if leader.tuning.get("workers"):
        again = [each for each in start(space) if each.device == leader.device]
        found += [replace(each, tuning=leader.tuning) for each in again]
    return found


def workers(space: CodeSpace, batch: int | None, device: str) -> list[int]:
    """Numbers of loader processes: powers of two, since a sample holds whole rounds of all loaders.

    Long steps allow fewer; a step on the CPU does not limit the number for a GPU.
    """
    bound = min(space.cpu.effective_cores, MOST_WORKERS)
    facts, step_s = space.facts, space.facts.step_s
    if batch and facts.batch:
        step_s *= batch / facts.batch
    if step_s and (kind_of(device).on_host or not space.on_cpu):
        bound = min(bound, max(2, int(LONGEST_SAMPLE_S / step_s)))
    largest = 1 << (bound.bit_length() - 1)
    return sorted({count for count in (0, 2, 4, 8, largest) if count <= bound})


def steps_per_sample(space: CodeSpace, batch: int | None, device: str) -> int:
    """Steps in one sample of every candidate of a device: one batch of each loader, for the most
    loaders.

    Loaders that limit finish their batches together: with four, one step waits and three do not,
    so a median of single steps would hide the wait.
    """
    return max(1, *workers(space, batch, device)) if space.facts.data else 1


def _with_modes(leader: Case, space: CodeSpace) -> Iterator[Case]:
    """The leader with one more mode, for each but KEEP that is possible and that it lacks."""
    present, impossible = leader.mode_words, {KEEP, *_impossible(leader.device, space.facts)}
    if not space.facts.convolves:
        impossible.add(NHWC)
    for mode in MODES:
        if mode not in {*present, *impossible}:
            yield replace(leader, mode="+".join(m for m in MODES if m in (*present, mode)))


def _impossible(device: str, facts: CodeFacts) -> set[str]:
    return {each.removesuffix(f" on {device}") for each in facts.impossible}


def _tuning(space: CodeSpace, device: str) -> dict[str, ParameterValue]:
    if not space.facts.data:
        return {}
    return {"workers": 0} if kind_of(device).on_host else {"workers": 0, "pin": 0}


def _loading(leader: Case, **settings: int) -> Case:
    return replace(leader, tuning={**leader.tuning, **settings})
