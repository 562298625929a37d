"""The claims of the measuring core, each a ratio of things measured in one run.

`make benchmark`, or `python -m benchmarks.campaign [ROW...]` for some of the rows.  Everything
runs in fresh processes, one at a time.  Results go into docs/accuracy.md.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.shared import ROOT, workbench as run_workbench, write_block
from benchmarks.terminal import PseudoTerminal
from workbench.machine.host.cpu import read_cpu
from workbench.records import events as ev
from workbench.report import journal
from workbench.stats.paired import Ratio, paired_ratio
from workbench.stats.ratios import RUN_TO_RUN
from workbench.stats.samples import MIN_PAIRS, blocked_interval

PAGE = ROOT / "docs" / "accuracy.md"
BEGIN, END = "<!-- written by make benchmark -->", "<!-- end -->"
DEADLINE_S = 120.0  # for a run under the TUI
THREADS = read_cpu(Path("/")).effective_cores
PRODUCT = ("run", "matmul", "--backend", "torch", "--device", "cpu", "--set", "n=1024")


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    found: str
    goal: str
    reached: bool
    detail: str


def ratio_of(rounds: Sequence[tuple[float, float]]) -> Ratio | None:
    first, second = zip(*rounds, strict=True)
    return paired_ratio(first, second)


def workbench(*arguments: str) -> dict[str, Any]:
    """The JSON document of a run; exit codes 0 and 1 are results."""
    return run_workbench(*arguments, codes=(0, 1))[0]


def rivals(kind: str, precision: str, size: int, seconds: float = 1.5) -> dict[str, float]:
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "benchmarks" / "rivals.py"), kind, precision),
            *(str(size), str(THREADS), str(seconds)),
        ],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(THREADS)},
    )
    return json.loads(done.stdout)


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# -------------------------------------------------------------------- rows


def speed(rounds: int = 5) -> Row:
    """Nothing is lost against the best hand-written loop."""
    jobs = [
        ("matmul", precision, n)
        for precision in ("fp32", "bf16", "fp64", "int8")
        for n in (512, 1024, 2048, 4096)
    ]
    jobs += [("infer_cnn", "fp32", 64), ("infer_cnn", "int8", 64)]
    ratios: dict[str, Ratio] = {}
    naive = []
    for kind, precision, size in jobs:
        against: dict[str, list[float]] = {}
        ours, snippet = [], []
        budget = "20" if size == 4096 else "5"
        for _ in range(rounds):
            parameter = "n" if kind == "matmul" else "image"
            backend = "torch" if kind == "matmul" else "onnxruntime"
            document = workbench(
                *("run", kind, "--backend", backend, "--device", "cpu", "--budget", budget),
                *("--precision", precision, "--set", f"{parameter}={size}"),
                *("--threads", str(THREADS)),
            )
            times = [m["p10_s"] for m in document["measurements"] if m["p10_s"] is not None]
            ours.append(min(times))
            found = rivals(kind, precision, size, 3 if size == 4096 else 0.7)
            snippet.append(found.pop("naive") / ours[-1])
            for rival, theirs in found.items():
                against.setdefault(rival, []).append(theirs)
        name = f"{kind} {precision} {size}"
        compared = [paired_ratio(theirs, ours) for theirs in against.values()]
        best = min((r for r in compared if r is not None), key=lambda ratio: ratio.value)
        ratios[name] = best
        naive.append(median(snippet))
        tell(
            f"  {name}: best rival / workbench {best.value:.3f} ({best.low:.3f}-{best.high:.3f}), "
            f"naive {naive[-1]:.2f}"
        )
    least = min(ratios, key=lambda name: ratios[name].value)
    slower = [name for name, ratio in ratios.items() if ratio.high < 0.99]
    lowest = ratios[least]
    return Row(
        "best throughput (p10), products FP32/BF16/FP64/INT8 of n = 512 to 4096 and two ONNX "
        "sessions, against the best of a plain loop, `timeit`, `torch.utils.benchmark`",
        f"median {median(r.value for r in ratios.values()):.3f}; least {lowest.value:.3f}, 95 %: "
        f"{lowest.low:.3f}-{lowest.high:.3f} ({least}); below 0.99 beyond doubt: {len(slower)} of "
        f"{len(ratios)}",
        ">= 0.99",
        not slower,
        f"the naive snippet took {median(naive):.1f}x as long, {max(naive):.1f}x at worst",
    )


def spread(values: Sequence[float]) -> float:
    return max(values) / min(values)


def paired(runs: int = 10) -> Row:
    """The paired ratio repeats where medians of runs on their own do not."""
    ratios, alone, naive = [], [], []
    for _ in range(runs):
        document = workbench(*PRODUCT[:2], *PRODUCT[4:], "--precision", "fp32", "--budget", "12")
        numpy, torch = document["measurements"]
        rounds = common_rounds(numpy, torch)
        ratio = ratio_of(rounds)
        ratios.append(ratio.value if ratio else math.nan)
        solo = [
            workbench(*PRODUCT[:2], *PRODUCT[4:], *only, "--budget", "8")["measurements"][0]
            for only in (
                ("--precision", "fp32", "--backend", "numpy"),
                ("--precision", "fp32", "--backend", "torch"),
            )
        ]
        alone.append(solo[0]["median_s"] / solo[1]["median_s"])
        snippets = [rivals("matmul", "fp32", 1024, 0.1)["naive"] for _ in range(2)]
        naive.append(snippets[0] / snippets[1])
        tell(f"  paired {ratios[-1]:.3f}, alone {alone[-1]:.3f}, naive {naive[-1]:.3f}")
    return Row(
        f"spread (max/min) of the paired ratio of two candidates, {runs} fresh runs",
        f"{spread(ratios):.3f}",
        "<= 1.03",
        spread(ratios) <= 1.03,
        f"medians of runs on their own {spread(alone):.2f}, the naive snippet {spread(naive):.2f}",
    )


def capability(runs: int = 10) -> Row:
    """The 10th percentile repeats from process to process."""
    found, medians, naive, loops = [], [], [], []
    for _ in range(runs):
        (measured,) = workbench(*PRODUCT, "--precision", "fp32", "--budget", "12")["measurements"]
        found.append(measured["capability"]["value"])
        medians.append(measured["median_s"])
        seconds = sum(measured["samples_s"]) * measured["iterations_per_sample"]
        theirs = rivals("matmul", "fp32", 1024, seconds)
        naive.append(theirs["naive"])
        loops.append(theirs["plain loop"])
        tell(f"  capability {found[-1]:.2f}/s, median {medians[-1] * 1e3:.2f} ms")
    return Row(
        f"spread of the capability (p10), n = 1024 FP32, {runs} fresh processes",
        f"{spread(found):.3f}",
        "<= 1.02",
        spread(found) <= 1.02,
        f"medians {spread(medians):.3f}, p10 of a plain loop as long {spread(loops):.3f}, "
        f"the naive snippet {spread(naive):.2f}",
    )


def coverage(races: int = 100) -> Row:
    """The stated interval contains the long-run ratio."""
    races_rounds = []
    for number in range(races):
        document = workbench(
            *("run", "matmul", "--backend", "numpy", "--set", "n=384", "--budget", "4")
        )
        rounds = common_rounds(*document["measurements"])
        if len(rounds) >= MIN_PAIRS:
            races_rounds.append(rounds)
        if number % 20 == 19:
            tell(f"  {number + 1} races")
    everything = [pair for rounds in races_rounds for pair in rounds]
    truth = ratio_of(everything)
    assert truth is not None
    within = [ratio_of(rounds) for rounds in races_rounds]
    intervals = [r and r.widened(RUN_TO_RUN) for r in within]
    held = [r.low <= truth.value <= r.high for r in intervals if r is not None]
    share = sum(held) / len(held)
    half = median((r.high - r.low) / 2 / r.value for r in intervals if r is not None)
    return Row(
        f"stated 95 % interval of a paired ratio contains the long-run ratio, {races} short races",
        f"{share:.0%}",
        "92-98 %",
        0.92 <= share <= 0.98,
        f"ratio {truth.value:.3f}; median half-width {half:.1%}; without the allowance for other "
        f"runs {sum(r.low <= truth.value <= r.high for r in within if r) / len(within):.0%}; "
        f"{median(map(len, races_rounds)):.0f} rounds a race",
    )


def common_rounds(first: dict[str, Any], second: dict[str, Any]) -> list[tuple[float, float]]:
    """Block medians of two measurements, of the rounds both took part in."""
    one, two = dict(block_medians(first)), dict(block_medians(second))
    return [(one[r], two[r]) for r in sorted(one.keys() & two.keys())]


def block_medians(measured: dict[str, Any]) -> Iterator[tuple[int, float]]:
    samples = iter(measured["samples_s"])
    for block in measured["blocks"]:
        yield block["round"], median([next(samples) for _ in range(block["n"])])


def streaming(runs: int = 7) -> Row:
    """Watching costs nothing: headless, streamed, and under the TUI in turns."""
    base = (*PRODUCT, "--precision", "fp32", "--budget", "8")
    found: dict[str, list[float]] = {"json": [], "jsonl": [], "tui": []}
    for _ in range(runs):
        found["json"].append(workbench(*base)["measurements"][0]["median_s"])
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "events.jsonl"
            subprocess.run(
                [sys.executable, "-m", "workbench", *base, "--jsonl", "--output", str(file)],
                check=True,
                stderr=subprocess.DEVNULL,
            )
            lines = [json.loads(line) for line in file.read_text().splitlines()]
        blocks = [line["samples_s"] for line in lines if line["event"] == "BlockMeasured"]
        found["jsonl"].append(median(chain.from_iterable(blocks)))
        found["tui"].append(median_under_the_screen(base))
        tell("  " + ", ".join(f"{name} {times[-1] * 1e3:.2f} ms" for name, times in found.items()))
    costs = {
        name: median(t / b for t, b in zip(found[name], found["json"], strict=True)) - 1
        for name in ("jsonl", "tui")
    }
    return Row(
        f"cost of streaming and of the TUI to the median step, against --json, {runs} rounds",
        f"--jsonl {costs['jsonl']:+.1%}, TUI {costs['tui']:+.1%}",
        "<= 1 %",
        max(costs.values()) <= 0.01,
        f"spread of --json itself {spread(found['json']):.3f}",
    )


def median_under_the_screen(arguments: Sequence[str]) -> float:
    """Median seconds per step of the run's only case while the TUI draws it."""
    with tempfile.TemporaryDirectory() as state:
        environ = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        command = [sys.executable, "-m", "workbench", *arguments]
        terminal = PseudoTerminal(command, environ | {"XDG_STATE_HOME": state}, (40, 120))
        events = finished(terminal, Path(state))
        os.write(terminal.fd, b"qq")  # the second is for a run whose end it has not read yet
        with suppress(OSError):
            while terminal.read(DEADLINE_S):
                pass
        os.waitpid(terminal.pid, 0)
    blocks = [event.samples_s for event in events if isinstance(event, ev.BlockMeasured)]
    return median(chain.from_iterable(blocks))


def finished(terminal: PseudoTerminal, state: Path) -> list[ev.AnyEvent]:
    """The events of the run in the folder `state`, whose screen is read meanwhile."""
    until = time.monotonic() + DEADLINE_S
    with suppress(OSError):  # the program has ended by itself
        while (now := time.monotonic()) < until:
            while (left := now + 1.0 - time.monotonic()) > 0:
                terminal.read(left)
            for file in state.glob("workbench/runs/*.jsonl"):
                events = journal.read(file)
                if events and isinstance(events[-1], ev.RunFinished):
                    return events
    raise SystemExit("the run under the TUI did not end")


def time_to_interval(runs: int = 2) -> Row:
    """Measured time until the median is known to within 2 %."""
    found = []
    for _ in range(runs):
        document = workbench("--budget", "60")
        picks = {verdict["pick"] for verdict in document["verdicts"]}
        fastest = (m for m in document["measurements"] if m["id"] in picks and m["n"] >= 10)
        found += [seconds_to(0.02, measured) for measured in fastest]
    reached = [seconds for seconds in found if seconds is not None]
    return Row(
        f"measured time to a 2 % interval of the median, the fastest of each row, {runs} runs",
        f"{median(reached):.2f} s median" if reached else "not reached",
        "<= 3 s",
        bool(reached) and median(reached) <= 3,
        f"reached by {len(reached)} of {len(found)}",
    )


def seconds_to(width: float, measured: dict[str, Any]) -> float | None:
    """Time in samples, lead-ins included, until the interval is that narrow; None: never."""
    samples, blocks = iter(measured["samples_s"]), []
    leads = sum(measured["lead_in_s"]) / max(1, len(measured["blocks"]))
    for shape in measured["blocks"]:
        blocks.append([next(samples) for _ in range(shape["n"])])
        interval = blocked_interval(blocks)
        everything = [sample for block in blocks for sample in block]
        center = median(everything)
        if interval is not None and (interval[1] - interval[0]) / 2 <= width * center:
            spent = sum(everything) + leads * len(blocks)
            return spent * measured["iterations_per_sample"]
    return None


# ------------------------------------------------------------------- table

ROWS: dict[str, Callable[[], Row]] = {
    "speed": speed,
    "paired": paired,
    "capability": capability,
    "coverage": coverage,
    "streaming": streaming,
    "time": time_to_interval,
}


def main() -> None:
    wanted = sys.argv[1:] or list(ROWS)
    for name in wanted:
        tell(name)
        row = ROWS[name]()
        tell(f"  {row.found} (goal {row.goal}); {row.detail}")
        old = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
        kept = [line for line in old.splitlines() if line.startswith("| ")][1:]
        write_block(PAGE, BEGIN, END, table(row, kept))


def table(row: Row, kept: Sequence[str]) -> str:
    """`kept`, the lines of an earlier table, with the row just measured in its place."""
    machine = workbench("detect")
    cpu = machine["machine"]["cpu"]
    lines = [
        f"{datetime.now(UTC):%Y-%m-%d}, {cpu['model']}, {cpu['effective_cores']} cores, "
        f"torch {machine['software']['packages']['torch']['version']}:",
        "",
        "| what | found | goal | reached | for comparison, in the same run |",
        "|---|---|---|---|---|",
    ]
    reached = "yes" if row.reached else "no"
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in kept}
    rows[row.what] = f"| {row.what} | {row.found} | {row.goal} | {reached} | {row.detail} |"
    lines += rows.values()
    return "\n".join(lines)


if __name__ == "__main__":
    main()
