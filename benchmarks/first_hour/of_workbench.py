"""Findings on what workbench makes of a card, read from its documents."""

from functools import partial
from math import inf

from .evidence import Evidence, NotTried, number
from .findings import HOPPER, SHEET, Findings, Range, Word, datasheet, hopper, on
from .of_card import PINNED, RATES, product

ALWAYS_FALSE = "not_frozen"
# True where others use the machine, its slot is slow, or the card is hot.
DOUBTFUL = ("busy_machine", "busy_gpu", "pcie_slow", "clock_moved")
ROWS = {
    "training": "gpu",
    "realtime": "gpu",
    "floating_point": "gpu",
    "prototyping": "cpu",
    "convolution": "gpu",
    "branching": "cpu",
}
EAGER = {"backend": "torch", "precision": "fp32", "mode": None}
LEAST_WAITING = 0.2  # share of a step; less could be noise
LOADERS_NEED_CORES = 8
COMPILED = {"compile", "reduce-overhead", "max-autotune"}  # words of a mode

finding = Findings()

# --------------------------------------------------------------------- breaks


@finding("B1", "ONNX Runtime's candidates on the GPU", Range(1, inf))
def onnxruntime_runs(seen: Evidence) -> float:
    packages = seen.document("detect")["software"]["packages"]
    known = [packages.get(name) or {} for name in ("onnxruntime", "onnxruntime-gpu")]
    installed = [each for each in known if each.get("version")]
    if not installed or all("CPU" in (each.get("detail") or "CPU") for each in installed):
        raise NotTried("onnxruntime is missing here or a CPU build")
    return len(list(seen.cases(["all", "table"], backend="onnxruntime", status="ok")))


finding.untried("B2", "a GPU that torch cannot use", "needs a card that torch cannot use")


@finding("B3", "compilations that were killed", Range(0, 0))
def killed_compiles(seen: Evidence) -> float:
    from workbench.records.reason import NOT_READY  # here: `--missing` runs without msgspec

    reasons = [
        each["reason"] or {}
        for each in seen.cases("train_gpt")
        if COMPILED.intersection((each["case"]["mode"] or "").split("+"))
    ]
    if not reasons:
        raise NotTried("train_gpt: no compiled candidate on the GPU")
    late = sum(why.get("message", "").startswith(NOT_READY) for why in reasons)
    return late + sum(why.get("code") == "worker_died" for why in reasons)


@finding("B4", "end after the budget", Range(-inf, 2, "s"))
def late_s(seen: Evidence) -> float:
    runs = [seen.document(step)["run"] for step in ("table", "table again")]
    due_s = [number(run["budget_s"]) + number(run.get("extended_s", 0.0)) for run in runs]
    return max(number(run["duration_s"]) - due for run, due in zip(runs, due_s, strict=True))


finding.untried("B4 lost", "a GPU that falls off the bus", "no card is harmed for a test")


@finding("B5", "prototyping under exclusive mode", Range(1, inf))
def exclusive(seen: Evidence) -> float:
    if not str(seen.fact("env", "smi")["modes"]).startswith("Exclusive"):
        raise NotTried("the compute mode is shared, and no card's mode is changed for a test")
    return len(list(seen.cases("table", scenario="prototyping", status="ok")))


@finding("B6", "torch's readers that raise after TF32 was switched", Range(0, 0))
def raising_readers(seen: Evidence) -> float:
    return sum(len(each["raised"]) for each in seen.facts("switches", "switches"))


# -------------------------------------------------------------- wrong numbers


@finding("W1", "workbench's latency over the bare one", Range(-15, 5, "us"))
def over_bare_us(seen: Evidence) -> float:
    bare = seen.fact("net", "net", way="eager", kind="float32")
    found = seen.measured("thorough", scenario="realtime", **EAGER)
    return 1e6 * number(found["median_s"]) - number(bare["p50_us"])


@finding("W2", "issue time over device time of a training", Range(0, 0.8))
def issue_share(seen: Evidence) -> float:
    clocks = seen.measured("train_gpt", **EAGER)["clocks"] or {}
    if clocks.get("issue_s") is None:
        raise NotTried("train_gpt: its launches were not timed apart")
    return number(clocks["issue_s"]) / number(clocks["device_s"])


@finding("W3", "cases whose energy was counted, raced alone", Range(1, inf))
def counted(seen: Evidence) -> float:
    # In a race the turns are shorter than the intervals between readings.
    state = seen.measured("alone", precision="bf16")["telemetry"] or {}
    is_counted = state.get("counted_power_w") is not None
    if not is_counted and not state.get("power_w"):
        raise NotTried("NVML reads no power here, as for one MIG instance")
    return float(is_counted)


@finding("W4", "error of ONNX Runtime's fp32", Range(0, 1e-4))
def onnxruntime_error(seen: Evidence) -> float:
    named = {"backend": "onnxruntime", "precision": "fp32", "status": "ok"}
    errors = [number(each["accuracy"]["value"]) for each in seen.cases(["all", "table"], **named)]
    if not errors:
        raise NotTried("ONNX Runtime measured nothing in fp32 on the GPU")
    return max(errors)


@finding("W5", "thin product over the memory's bandwidth", Range(0.3, 1), source=SHEET)
def thin_share(seen: Evidence) -> float:
    peak = datasheet(seen.card).get("memory_bytes_per_s")
    if peak is None:
        raise NotTried("no datasheet figure for this card")
    found = seen.measured("gemm", m=1, precision="bf16", mode=None)
    return number(found["work"]["bytes_moved"]) / number(found["median_s"]) / peak


@finding("W6", "bf16 ceiling over the fastest tenth outside workbench", Range(0.95, 1.05))
def ceiling_of_truth(seen: Evidence) -> float:
    peak = number(seen.ceiling()["peak_ops_per_s"].get("bf16"))
    return peak / 1e12 / product("bf16", "fastest", seen)


@finding("W6 sustained", "bf16 sustained over that outside workbench", Range(0.95, 1.05))
def sustained_of_truth(seen: Evidence) -> float:
    rate = number(seen.ceiling()["sustained_ops_per_s"].get("bf16"))
    return rate / 1e12 / product("bf16", "sustained", seen)


@finding("W7", "workers bound to the GPU's NUMA node", Word("bound"))
def binding(seen: Evidence) -> str:
    machine = seen.document("table")["machine"]
    if (machine["cpu"].get("numa_nodes") or 1) == 1:
        raise NotTried("the machine has one NUMA node")
    return "bound" if machine["gpus"][0].get("worker_cores") else "not bound"


@finding("W8", "train_cnn's share of waiting for data", Range(0, 1))
def waiting_told(seen: Evidence) -> float:
    found = seen.measured("train_cnn", loaders=1, mode=None)
    return number(found["figures"].get("waiting_fraction"))


# ------------------------------------------------------------------ misleading


def choice(row: str, seen: Evidence) -> str:
    return str(seen.verdict("table", row)["choice"])


for row, device in ROWS.items():
    name = "M1" if row == "realtime" else f"row {row}"
    finding(name, f"choice of the row {row}", on(HOPPER, Word(device)))(partial(choice, row))


@finding("M2", "share of train_cnn's waiting that 4 loaders end", Range(0.5, inf))
def loaders_gain(seen: Evidence) -> float:
    if seen.document("train_cnn")["machine"]["cpu"]["effective_cores"] < LOADERS_NEED_CORES:
        raise NotTried(f"4 loaders need {LOADERS_NEED_CORES} cores")
    one, four = (seen.measured("train_cnn", loaders=n, mode=None) for n in (1, 4))
    waiting = number(one["figures"].get("waiting_fraction"))
    if waiting < LEAST_WAITING:
        raise NotTried(f"with 1 loader it waits only {waiting:.0%} of the time")
    return (1 - number(four["median_s"]) / number(one["median_s"])) / waiting


@finding("M3", "peaks that a second run did not keep", Word("none"))
def kept_ceilings(seen: Evidence) -> str:
    first, second = (seen.ceiling(step)["peak_ops_per_s"] for step in ("table", "table again"))
    if not first:
        return "none"
    # A kept rate may be raised by a faster result; one that was measured again may be lower.
    return listed({name for name, rate in first.items() if second.get(name, 0.0) < number(rate)})


@finding("M3 peaks", "precisions without a peak", Word("none"))
def missing_peaks(seen: Evidence) -> str:
    expected = datasheet(seen.card).get("peak_ops_per_s") or RATES  # not every card has FP8
    return listed(set(expected) - set(seen.ceiling()["peak_ops_per_s"]))


finding.untried("M4", "claims of the README", "words, not a figure")


# The datasheets of other cards name fewer precisions.
@finding("M5", "peaks without a datasheet figure", on(HOPPER, Word("none")), source=SHEET)
def unbounded(seen: Evidence) -> str:
    known = datasheet(seen.card).get("peak_ops_per_s", {})
    return listed(set(seen.ceiling()["peak_ops_per_s"]) - set(known))


@finding("M6", "false warnings on a quiet machine", Word("none"))
def false_warnings(seen: Evidence) -> str:
    documents = map(seen.document, ("table", "table again", "thorough"))
    codes = {warning["code"] for each in documents for warning in each["warnings"]}
    if ALWAYS_FALSE not in codes and (doubtful := codes.intersection(DOUBTFUL)):
        raise NotTried(f"{listed(doubtful)}: only a look at the machine tells whether that is true")
    return listed(codes & {ALWAYS_FALSE, *DOUBTFUL})


def without_a_turn(step: str, seen: Evidence) -> str:
    """The rows of a run in which the GPU had no turn, as the starts of workers left no time."""
    measured = {each["scenario"] for each in seen.cases(step, status="ok")}
    return listed(set(ROWS) - measured)


finding("M7", "rows of --quick without a turn on the GPU", Word("none"))(
    partial(without_a_turn, "quick")
)
finding("M7 default", "rows of the default run without one", Word("none"))(
    partial(without_a_turn, "table")
)

# ------------------------------------------------------------------------ slow


finding.untried("S1", "operands that are drawn again", "a test shows it")
finding.untried("S2", "doubled fill steps", "a test shows it")


# The check runs the network before the first timed step, so no figure of a run would show it.
finding.untried("S3", "cuDNN loaded before the first step", "a test shows it")
finding.untried("S4", "refusals before drawing", "needs a card that lacks precisions")


@finding("S5", "end of the search for the largest batch", Word("memory"))
def largest(seen: Evidence) -> str:
    return listed(
        {str(each["ended_by"]) for each in seen.document("largest batch")["largest_batches"]}
    )


finding.untried("S6", "memory after a failed preparation", "a test shows it")
finding.untried("S7", "Inductor's processes after compiling", "a test shows it")

# ---------------------------------------------------------------- predictions


@finding("runs agree", "difference of two runs' ratios", Range(0, 0.1))
def disagreement(seen: Evidence) -> float:
    worst = 0.0
    for row in set(ROWS) - {"realtime", "prototyping"}:
        one, two = (seen.verdict(step, row)["device_ratio"] for step in ("table", "table again"))
        worst = max(worst, abs(number(one) / number(two) - 1))
    return worst


def of_ceiling_us(key: str, seen: Evidence) -> float:
    return 1e6 * number(seen.ceiling()[key])


finding("ceiling launch", "a launch", hopper(3, 6, "us"))(partial(of_ceiling_us, "launch_s"))
finding("ceiling step", "a launch and the wait for it", hopper(8, 15, "us"))(
    partial(of_ceiling_us, "step_latency_s")
)


def transfer_gb_s(direction: str, seen: Evidence) -> float:
    found = seen.measured("transfer", direction=direction, mode="pinned")
    return number(found["work"]["bytes_moved"]) / number(found["median_s"]) / 1e9


finding("transfer to device", "workbench's pinned copy to the GPU", PINNED)(
    partial(transfer_gb_s, "to_device")
)
finding("transfer both", "both directions at once", hopper(80, 110, "GB/s"))(
    partial(transfer_gb_s, "both")
)


@finding("scaling", "groups of one that ran", Range(1, inf))
def groups(seen: Evidence) -> float:
    return len(list(seen.cases("scaling", status="ok")))


@finding("trace", "the trace of a tf32 candidate", Word("written"))
def traced(seen: Evidence) -> str:
    found = seen.measured("trace", precision="tf32", mode=None)
    if found["unprofiled"] is not None:
        return str(found["unprofiled"]["message"])
    return "written" if seen.step("trace").get("trace_bytes") else "empty"


@finding("all", "workloads that fail on the GPU", Word("none"))
def failing(seen: Evidence) -> str:
    return listed({each["id"] for each in seen.cases("all", status="failed")})


@finding("limits", "steps killed at their limit", Word("none"), source="parts.py")
def killed(seen: Evidence) -> str:
    if seen.card is None:
        seen.step("env")  # raises the reason
    steps = [part.get("steps", {}) for part in seen.parts.values()]
    return listed({name for each in steps for name, step in each.items() if step["timed_out"]})


def listed(words: set[str]) -> str:
    return ", ".join(sorted(words)) or "none"
