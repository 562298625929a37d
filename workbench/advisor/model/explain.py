"""Why a variant of the model won or lost, in sentences from the run's own profiles.

Pure functions of a report.  Times are seconds per run; a quantised kernel counts as its operator.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...machine.host.isa import lacking
from ...records.machine import Cpu
from ...records.model import Built, Explanation, ModelFacts, OperatorTimes
from ...report.candidate import Candidate
from ...report.report import Report
from ...stats.objectives import UNTIMED
from ...text import units
from ..ranking import gain_over, gain_text

CONVERSIONS = "quantise, dequantise"
_OPERATORS = (  # a pattern in the name of a kernel, and the operator's name for it
    (r".*uantizeLinear$", CONVERSIONS),
    (r"^Reorder(In|Out)put$", "layout"),
    (r"^(Nhwc|Fused|QLinear|DynamicQuantize|Q(?=[A-Z]))+|Integer(ToFloat)?$", ""),
    (r"^Gemm$", "MatMul"),
)
PRODUCTS = (  # all that `ModelFacts.weights_bytes` counts
    "Attention", "Conv", "ConvTranspose", "Einsum", "GRU", "LSTM", "MatMul", "RNN",
)  # fmt: skip
# Operators whose kernels take any type; a static variant with scope "all" runs them in INT8.
_EITHER = (
    "DepthToSpace", "Flatten", "Gather", "MaxPool", "Pad", "Reshape", "Resize", "Slice", "Split",
    "Squeeze", "Transpose", "Unsqueeze",
)  # fmt: skip
_INTEGER = ("QLinear", "QGemm", "QAttention", "MatMulInteger", "ConvInteger", "DynamicQuantize")
NOTABLE = 0.15  # share of a run's time below which nothing is worth a sentence
MOST_ROWS = 12  # most rows in the table of operators
IDLE = 0.5  # share of kernels in a run below which session overhead dominates
SLOWED = 3.0  # times the raced run, beyond which kernels of a profiled one explain nothing
NEAR_MEMORY = 0.6  # share of the measured bandwidth from which memory is the limit


def stands_for(kernel: str) -> str:
    """The operator that `kernel` computes: `QLinearConv` is a Conv."""
    for pattern, word in _OPERATORS:
        kernel = re.sub(pattern, word, kernel)
    return kernel


@dataclass(frozen=True)
class KernelTimes:
    """Seconds per run: by operator and by kernel from the profile, and the whole as it raced."""

    by_operator: Mapping[str, float]
    by_kernel: Mapping[str, float]
    run_s: float

    @classmethod
    def of(cls, candidate: Candidate) -> "KernelTimes":
        by_operator: dict[str, float] = defaultdict(float)
        by_kernel: dict[str, float] = defaultdict(float)
        for kernel in candidate.operators:
            seconds = kernel.self_s / candidate.profiled_steps
            by_kernel[kernel.name] += seconds
            by_operator[stands_for(kernel.name)] += seconds
        return cls(by_operator, by_kernel, candidate.median_s)

    @property
    def total_s(self) -> float:
        return sum(self.by_kernel.values())

    @property
    def products_s(self) -> float:
        return sum(self.by_operator.get(name, 0.0) for name in PRODUCTS)

    def share(self, name: str) -> float:
        """Share of all kernel time that an operator or kernel takes, 0 to 1."""
        own_s = self.by_kernel.get(name, self.by_operator.get(name, 0.0))
        return own_s / self.total_s if self.total_s else 0.0


def explain(candidate: Candidate, given: Candidate, report: Report, *, won: bool) -> Explanation:
    """`candidate` against `given`, the fastest run of the model as given on the same device."""
    model, machine = report.model, report.machine
    assert model is not None and machine is not None  # it has raced
    if candidate.case == given.case:
        limits = [*_limits(candidate, model.facts, report), *_left_to_the_cpu(candidate)]
        return Explanation(candidate.case.id, won, limits)
    mine, other = KernelTimes.of(candidate), KernelTimes.of(given)
    sentences = [_headline(candidate, given)]
    sentences += _too_far_off(candidate, model.facts)
    raced = gain_over(given, candidate, Candidate.step_rounds)
    is_faster = raced is not None and raced.factor >= 1
    is_slowed = any(each.total_s > SLOWED * each.run_s for each in (mine, other))
    if is_slowed:
        why = "a profiled run took far longer than a raced one"
        sentences.append(f"Their operators are not compared, because {why}.")
    elif candidate.case.precision != given.case.precision and mine.total_s and other.total_s:
        if candidate.case.threads != given.case.threads:
            sentences.append("Their operators are not compared, because their threads differ.")
        elif is_faster:
            sentences += _gains(mine, other)
        elif candidate.case.precision == "int8":
            sentences += _losses(mine, other, machine.cpu)
        if candidate.case.precision == "int8":
            sentences += _left_in_fp32(candidate, mine, model.built)
    sentences += _left_to_the_cpu(candidate)
    if is_faster:
        sentences += _threads(candidate, given)
    table = [] if is_slowed else _table(mine, other)
    return Explanation(candidate.case.id, won, sentences, table)


def _headline(candidate: Candidate, given: Candidate) -> str:
    name, other = candidate.name, given.name
    gained = gain_over(given, candidate)
    if gained is None:
        return f"{name} cannot be compared with {other}: no {candidate.objective} was measured."
    ratio = gained.ratio
    if ratio is not None and ratio.low <= 1 <= ratio.high:
        apart = units.apart(ratio.value, ratio.interval)
        return f"{name} and {other} cannot be distinguished: {apart}."
    return f"{name} is {gain_text(gained, candidate.objective, other)}."


def _too_far_off(candidate: Candidate, facts: ModelFacts) -> Iterator[str]:
    accuracy, limit = candidate.accuracy, facts.max_error
    if accuracy is None or limit is None or accuracy.worst <= limit:
        return
    if accuracy.metric == "relative_error":
        what = "error"
        worst = max(accuracy.listed, key=lambda o: o.relative_error, default=None)
        name = f"{worst.name}{worst.part or ''}" if worst else ""
    else:
        what = "disagreement"
        rows = [(o.top1_agreement, o.name) for o in accuracy.listed if o.top1_agreement is not None]
        name = min(rows)[1] if rows else ""
    where = f" (worst in output {name})" if name else ""
    bound = accuracy.error_bound
    unseen = "" if bound is None else f", up to {units.share(bound)} on unseen inputs,"
    found = f"Its {what} of {units.share(accuracy.value)}{where}{unseen}"
    yield f"{found} exceeds the limit of {units.share(limit)}: it cannot be recommended."


def _losses(mine: KernelTimes, other: KernelTimes, cpu: Cpu) -> Iterator[str]:
    is_slow_conv = mine.share("ConvInteger") > NOTABLE
    if is_slow_conv:
        share, took = mine.share("ConvInteger"), units.duration(mine.by_kernel["ConvInteger"])
        fp32 = f"FP32 convolutions {units.duration(other.by_operator.get('Conv', 0.0))}"
        yield f"ConvInteger takes {share:.0%} of its kernel time: {took} a run, {fp32}."
        yield "ONNX Runtime has no fast kernel for ConvInteger; static quantisation avoids it."
    missing = lacking("int8", cpu)
    if missing is not None:
        yield f"This CPU has no {missing}, so INT8 products gain little over FP32."
    if mine.share(CONVERSIONS) > NOTABLE:
        took_s = mine.by_operator[CONVERSIONS]
        is_loss = took_s > other.products_s - mine.products_s
        more = ", more than its products save" if is_loss else ""
        share, took = mine.share(CONVERSIONS), f"({units.duration(took_s)} a run)"
        yield f"Quantising and dequantising takes {share:.0%} of its kernel time {took}{more}."
    for name in ("MatMul",) if is_slow_conv else ("Conv", "MatMul"):
        mine_s, other_s = mine.by_operator.get(name, 0.0), other.by_operator.get(name, 0.0)
        if mine_s - other_s > NOTABLE * mine.run_s:
            took = f"{units.duration(mine_s)} in INT8 and {units.duration(other_s)} in FP32"
            yield f"{name} takes {took}: its sizes do not suit the integer kernels."
    yield from _idle(mine)


def _gains(mine: KernelTimes, other: KernelTimes) -> Iterator[str]:
    for name in PRODUCTS:
        mine_s, other_s = mine.by_operator.get(name, 0.0), other.by_operator.get(name, 0.0)
        if mine_s and other_s - mine_s > NOTABLE * other.run_s:
            took = f"{units.duration(mine_s)} a run instead of {units.duration(other_s)}"
            yield f"{name} takes {took} ({units.ratio(other_s / mine_s)} faster)."
    if mine.share(CONVERSIONS) > NOTABLE:
        share = mine.share(CONVERSIONS)
        yield f"Quantising and dequantising takes {share:.0%} of the remaining time."


def _left_in_fp32(
    candidate: Candidate, mine: KernelTimes, variants: Sequence[Built]
) -> Iterator[str]:
    """The operators that still run in FP32, some of them on purpose."""
    form = candidate.case.quantization or ""
    unknown = _EITHER if form.startswith("static") and "products" not in form else ()
    floating = {
        name: seconds
        for name, seconds in mine.by_kernel.items()
        if not name.startswith(_INTEGER)
        and stands_for(name) not in (CONVERSIONS, "layout", *unknown)
    }
    share = sum(floating.values()) / mine.total_s
    if share > 2 * NOTABLE:
        most = sorted(floating, key=floating.__getitem__, reverse=True)[:3]
        yield f"Operators in FP32 take {share:.0%} of its time, mostly {', '.join(most)}."
    variant = candidate.case.variant
    for built in (each for each in variants if each.recipe == variant and each.excluded):
        count = len(built.excluded)
        covered = f"; {built.coverage:.0%} of the products stay in INT8" if built.coverage else ""
        stay = "nodes stay" if count > 1 else "node stays"
        yield f"{count} sensitive {stay} in FP32 to keep the error limit{covered}."


def _limits(candidate: Candidate, facts: ModelFacts, report: Report) -> Iterator[str]:
    """The limit of the model as given: memory bandwidth, or the work outside its products."""
    profile = KernelTimes.of(candidate)
    best = "best" if candidate.objective in UNTIMED else "fastest"
    yield f"{candidate.name} is the {best} run of the model as given."
    devices = report.ceilings.devices if report.ceilings else []
    here = (d.memory_bytes_per_s for d in devices if d.device == candidate.case.device)
    ceiling = next(here, None)
    weights_bytes, products_s = facts.weights_bytes, profile.products_s
    if ceiling and products_s > NOTABLE * profile.run_s:
        rate = weights_bytes / products_s
        if NEAR_MEMORY <= rate / ceiling <= 1 / NEAR_MEMORY:
            reached = f"{units.rate(rate, 'B/s')}, {rate / ceiling:.0%} of the memory bandwidth"
            read = f"Its products read {units.size(weights_bytes)} of weights a run at {reached}"
            yield f"{read}. Memory limits it; smaller weights would help."
    yield from _idle(profile)


def _left_to_the_cpu(candidate: Candidate) -> Iterator[str]:
    if candidate.fallback_fraction > NOTABLE:
        share = f"{candidate.fallback_fraction:.0%} of the time"
        yield f"Its provider leaves {share} to the CPU, with copies there and back."


def _idle(profile: KernelTimes) -> Iterator[str]:
    if profile.total_s and profile.total_s < IDLE * profile.run_s:
        yield (
            f"Its kernels fill {profile.total_s / profile.run_s:.0%} of a run of "
            f"{units.duration(profile.run_s)}; the rest is session overhead at any precision."
        )


def _threads(candidate: Candidate, given: Candidate) -> Iterator[str]:
    """That fewer threads are enough, where the faster candidate differs in nothing else."""
    mine, other = candidate.case.threads, given.case.threads
    if mine is None or other is None or mine >= other:
        return
    if candidate.case.variant == given.case.variant:
        enough = "One thread is" if mine == 1 else f"{mine} threads are"
        yield f"{enough} enough: too little work to split further."


def _table(mine: KernelTimes, other: KernelTimes) -> list[OperatorTimes]:
    names = {**other.by_operator, **mine.by_operator}
    rows = [
        OperatorTimes(name, other.by_operator.get(name, 0.0), mine.by_operator.get(name, 0.0))
        for name in names
    ]
    return sorted(rows, key=lambda row: max(row.fp32_s, row.int8_s), reverse=True)[:MOST_ROWS]
