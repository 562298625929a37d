"""Why a form of the model won or lost, in sentences from the session's own profiles.

Pure: the same report gives the same words.  An operator counts in seconds of one run; a quantised
kernel counts with the operator it stands for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...machine.host.isa import X86, lacking
from ...records.machine import Cpu
from ...records.model import Built, Explanation, ModelFacts, OperatorTimes
from ...report.candidate import Candidate
from ...report.names import short
from ...stats.ratios import ratio_between, relative
from ...stats.samples import median
from ...text import units
from ...text.units import times
from .overview import form_of

CONVERSIONS = "quantise, dequantise"
_STANDS_FOR = {
    "ConvInteger": "Conv",
    "FusedConv": "Conv",
    "NhwcFusedConv": "Conv",
    "Gemm": "MatMul",
    "QGemm": "MatMul",
    "FusedGemm": "MatMul",
    "FusedMatMul": "MatMul",
    "MatMulInteger": "MatMul",
    "MatMulIntegerToFloat": "MatMul",
    "DynamicQuantizeMatMul": "MatMul",
    "DynamicQuantizeLSTM": "LSTM",
    "QAttention": "Attention",
    "QuantizeLinear": CONVERSIONS,
    "DequantizeLinear": CONVERSIONS,
    "DynamicQuantizeLinear": CONVERSIONS,
    "ReorderInput": "layout",
    "ReorderOutput": "layout",
}
_INTEGER = ("QLinear", "QGemm", "QAttention", "MatMulInteger", "ConvInteger", "DynamicQuantize")
NOTABLE = 0.15  # of a run's time: what is less explains nothing
MOST_ROWS = 12  # of the table of operators
IDLE = 0.5  # of a run: what its kernels leave over, beyond which the session itself is the cost
NEAR_MEMORY = 0.6  # of the measured bandwidth
COMPARED = {  # where it is not time that counts
    "memory": ("lower in peak memory", "higher in peak memory"),
    "energy": ("lower in energy", "higher in energy"),
}


def stands_for(kernel: str) -> str:
    """The operator that `kernel` computes: `QLinearConv` is a Conv."""
    plain = _STANDS_FOR.get(kernel, kernel.removeprefix("QLinear").removeprefix("Nhwc"))
    return _STANDS_FOR.get(plain, plain)


@dataclass(frozen=True)
class Profile:
    """Seconds of one run by operator and by kernel, and of the whole run when it was raced."""

    by_operator: Mapping[str, float]
    by_kernel: Mapping[str, float]
    run_s: float

    @classmethod
    def of(cls, candidate: Candidate) -> Profile:
        by_operator: dict[str, float] = {}
        by_kernel: dict[str, float] = {}
        for found in candidate.operators:
            seconds = found.self_s / candidate.profiled_steps
            by_kernel[found.name] = by_kernel.get(found.name, 0.0) + seconds
            name = stands_for(found.name)
            by_operator[name] = by_operator.get(name, 0.0) + seconds
        return cls(by_operator, by_kernel, median(candidate.samples_s))

    @property
    def total_s(self) -> float:
        return sum(self.by_kernel.values())

    def share(self, *names: str) -> float:
        """Of all kernels' time."""
        found = sum(self.by_kernel.get(name, self.by_operator.get(name, 0.0)) for name in names)
        return found / self.total_s if self.total_s else 0.0


@dataclass(frozen=True)
class Evidence:
    """What the sentences may rest on."""

    facts: ModelFacts
    cpu: Cpu
    limit: float
    built: Mapping[str, Built]  # by recipe
    memory_bytes_per_s: float | None  # the measured ceiling of the CPU


def explain(candidate: Candidate, beside: Candidate, won: bool, known: Evidence) -> Explanation:
    """`candidate` against `beside`, the fastest run of the model as given on the same device; both
    profiled where that was possible."""
    if candidate.case == beside.case:
        return Explanation(candidate.case.id, won, list(_of_original(candidate, known)))
    mine, other = Profile.of(candidate), Profile.of(beside)
    sentences = [_headline(candidate, beside)]
    sentences += _too_far_off(candidate, known)
    if candidate.case.precision != beside.case.precision and mine.total_s and other.total_s:
        if mine.run_s <= other.run_s:
            sentences += _gains(mine, other)
        elif candidate.case.precision == "int8":
            sentences += _losses(candidate, mine, other, known)
        if candidate.case.precision == "int8":
            sentences += _left_in_fp32(candidate, mine, known)
    if candidate.fallback_fraction > NOTABLE:
        sentences.append(
            f"{candidate.fallback_fraction:.0%} of its operators' time is spent on nodes that its "
            "provider left to the CPU, and data is copied there and back."
        )
    sentences += _threads(candidate, beside)
    return Explanation(candidate.case.id, won, sentences, _table(mine, other))


def _headline(candidate: Candidate, beside: Candidate) -> str:
    mine, others = candidate.rounds(), beside.rounds()
    name, other = short(candidate.case), short(beside.case)
    better, worse = COMPARED.get(candidate.objective, ("faster", "slower"))
    ratio = ratio_between(others, mine)
    if ratio is not None and ratio.low <= 1 <= ratio.high:
        return f"{name} is not told apart from {other}: {times(ratio.value, ratio.interval)}."
    if ratio is not None:
        lead = ratio if ratio.low > 1 else ratio.inverse()
        told = times(lead.value, lead.interval)
        return f"{name} is {told} {better if ratio.low > 1 else worse} than {other}."
    if not (mine and others):
        return f"{name} cannot be compared with {other}: what counts was not read."
    factor = relative(others, mine)
    few = "one block" if len(mine) == 1 else "too few rounds for an interval"
    word = better if factor > 1 else worse
    return f"{name} is {max(factor, 1 / factor):.2f}x {word} than {other} ({few})."


def _too_far_off(candidate: Candidate, known: Evidence) -> Iterator[str]:
    accuracy = candidate.accuracy
    if accuracy is None or accuracy.value <= known.limit:
        return
    worst = max(accuracy.outputs, key=lambda o: o.relative_error, default=None)
    where = f", worst in output {worst.name}" if worst and len(accuracy.outputs) > 1 else ""
    what = "error" if accuracy.metric == "relative_error" else "disagreement"
    yield (
        f"Its {what} is {units.share(accuracy.value)}{where}: above the limit of "
        f"{units.share(known.limit)}, so it cannot be recommended."
    )


def _losses(candidate: Candidate, mine: Profile, other: Profile, known: Evidence) -> Iterator[str]:
    if mine.share("ConvInteger") > NOTABLE:
        mine_s, other_s = mine.by_kernel["ConvInteger"], other.by_operator.get("Conv", 0.0)
        yield (
            f"{mine.share('ConvInteger'):.0%} of its time is ConvInteger, for which ONNX Runtime "
            f"has no fast kernel: {units.duration(mine_s)} a run, where FP32 convolutions take "
            f"{units.duration(other_s)}; static quantisation avoids it."
        )
    missing = lacking("int8", known.cpu)
    if missing is not None:
        yield f"This CPU has no {missing}: products in INT8 gain little over FP32."
    built = known.built.get(form_of(candidate.case))
    is_signed = built is not None and "s8s8" in built.recipe and (built.coverage or 1.0) < 1.0
    if is_signed and known.cpu.architecture in X86:
        yield (
            "Its activations are signed; where several operators read one, ONNX Runtime on x86 "
            "finds no integer kernel and computes in FP32."
        )
    if mine.share(CONVERSIONS) > NOTABLE:
        yield (
            f"{mine.share(CONVERSIONS):.0%} of its time goes into quantising and dequantising "
            f"({units.duration(mine.by_operator[CONVERSIONS])} a run): more than its products save."
        )
    for name in ("Conv", "MatMul"):
        mine_s, other_s = mine.by_operator.get(name, 0.0), other.by_operator.get(name, 0.0)
        if mine_s > other_s and mine_s - other_s > NOTABLE * mine.run_s:
            if name == "Conv" and mine.share("ConvInteger") > NOTABLE:
                continue
            yield (
                f"{name} itself takes {units.duration(mine_s)} in INT8 and "
                f"{units.duration(other_s)} in FP32: its sizes do not suit the integer kernels."
            )
    yield from _idle(mine)


def _gains(mine: Profile, other: Profile) -> Iterator[str]:
    for name in ("Conv", "MatMul", "LSTM", "Attention"):
        mine_s, other_s = mine.by_operator.get(name, 0.0), other.by_operator.get(name, 0.0)
        if mine_s and other_s - mine_s > NOTABLE * other.run_s:
            yield (
                f"{name} takes {units.duration(mine_s)} a run instead of "
                f"{units.duration(other_s)} ({other_s / mine_s:.1f}x faster)."
            )
    if mine.share(CONVERSIONS) > NOTABLE:
        yield (f"Quantising and dequantising takes {mine.share(CONVERSIONS):.0%} of what is left.")


def _left_in_fp32(candidate: Candidate, mine: Profile, known: Evidence) -> Iterator[str]:
    """The coverage: operators that still run in FP32, and on purpose."""
    floating = {
        name: seconds
        for name, seconds in mine.by_kernel.items()
        if not name.startswith(_INTEGER) and stands_for(name) not in (CONVERSIONS, "layout")
    }
    share = sum(floating.values()) / mine.total_s
    if share > 2 * NOTABLE:
        most = sorted(floating, key=floating.__getitem__, reverse=True)[:3]
        yield f"{share:.0%} of its time is operators left in FP32, most in {', '.join(most)}."
    built = known.built.get(form_of(candidate.case))
    if built is not None and built.excluded:
        count = len(built.excluded)
        covered = f"; {built.coverage:.0%} of the products stay in INT8" if built.coverage else ""
        yield (
            f"{count} sensitive node{'s'[: count > 1]} stay{'s'[count > 1 :]} in FP32 to meet the "
            f"error limit{covered}."
        )


def _of_original(candidate: Candidate, known: Evidence) -> Iterator[str]:
    """What limits the model as given."""
    profile = Profile.of(candidate)
    best = "best" if candidate.objective in COMPARED else "fastest"
    yield f"{short(candidate.case)} is the {best} run of the model as given."
    products_s = sum(profile.by_operator.get(name, 0.0) for name in ("MatMul", "LSTM", "Conv"))
    ceiling = known.memory_bytes_per_s
    if ceiling and products_s > 0 and products_s > NOTABLE * profile.run_s:
        rate = known.facts.weights_bytes / products_s
        if NEAR_MEMORY <= rate / ceiling <= 1 / NEAR_MEMORY:
            yield (
                f"Its products read {units.size(known.facts.weights_bytes)} of weights a run at "
                f"{units.rate(rate, 'B/s')}, {rate / ceiling:.0%} of what memory gives: memory "
                "limits it, and smaller weights are what helps."
            )
    yield from _idle(profile)


def _idle(profile: Profile) -> Iterator[str]:
    if profile.total_s and profile.total_s < IDLE * profile.run_s:
        yield (
            f"Its kernels fill {profile.total_s / profile.run_s:.0%} of a run of "
            f"{units.duration(profile.run_s)}: the rest is the session's own cost, which no "
            "precision changes."
        )


def _threads(candidate: Candidate, beside: Candidate) -> Iterator[str]:
    mine, other = candidate.case.threads, beside.case.threads
    if mine is None or other is None or mine == other:
        return
    if mine < other and median(candidate.samples_s) < median(beside.samples_s):
        yield "Fewer threads suit it: its work is too little to be divided further."


def _table(mine: Profile, other: Profile) -> list[OperatorTimes]:
    names = {**other.by_operator, **mine.by_operator}
    rows = [
        OperatorTimes(name, other.by_operator.get(name, 0.0), mine.by_operator.get(name, 0.0))
        for name in names
    ]
    return sorted(rows, key=lambda row: max(row.fp32_s, row.int8_s), reverse=True)[:MOST_ROWS]
