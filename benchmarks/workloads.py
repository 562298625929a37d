"""Compares each workload with a plain script that does the same work, in turns in one process.

`make workloads`, or `python -m benchmarks.workloads [WORKLOAD[/LIBRARY]...]` for some; optional
libraries count where they are installed.  The ratio is the
script's time over the workload's: 1 means no overhead, below 0.98 is too much.  Results go into
benchmarks/results/workloads.md.
"""

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import straight, straight_libraries
from benchmarks.shared import ROOT, write_block
from workbench import catalog
from workbench.contract import Case, Setup
from workbench.machine.host.cpu import read_cpu
from workbench.stats.paired import paired_ratio
from workbench.text import units

PAGE = ROOT / "benchmarks" / "results" / "workloads.md"
BEGIN, END = "<!-- written by make workloads -->", "<!-- end of it -->"
GOAL = 0.98
SCRIPTS = {**straight.SCRIPTS, **straight_libraries.SCRIPTS}
PROCESSES, TURNS, TURN_S = 3, 14, 0.1  # the placement of memory differs between processes


def case_of(name: str, backend: str, precision: str) -> Case:
    """The workload at its --quick size on the CPU."""
    name, _, way = name.partition("/")
    workload = catalog.load(name)
    batch = workload.quick.get("batch", workload.default_batch)
    tuned = [parameter for parameter in workload.parameters if parameter.tuning]
    return Case(
        workload=name,
        device="cpu",
        backend=backend,
        precision=precision,
        mode=way if way in {variant.mode for variant in workload.variants} else None,
        threads=read_cpu(Path("/")).effective_cores,
        batch=None if batch is None else int(batch),
        params=workload.values(workload.quick),
        tuning={p.name: workload.quick.get(p.name, p.default) for p in tuned},
    )


def turn(call: Callable[[], Any], number: int) -> float:
    """Seconds per call."""
    began = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - began) / number


def compare(name: str) -> dict[str, Any]:
    """Seconds per step of both sides, turn by turn; runs in a process of its own."""
    backend, precision, build = SCRIPTS[name]
    case = case_of(name, backend, precision)
    catalog.load_backend(backend).version()  # some settings must precede the import
    task = catalog.load(case.workload).prepare(case, Setup())
    task.activate()
    script = build(case, task)
    calls = {"ours": task.step, "theirs": script}
    numbers = {}
    for side, call in calls.items():
        call()
        each = min(turn(call, 1) for _ in range(3))
        numbers[side] = max(1, round(TURN_S / each))
    found: dict[str, list[float]] = {side: [] for side in calls}
    for number in range(TURNS):
        order = list(calls) if number % 2 == 0 else list(reversed(calls))
        for side in order:
            turn(calls[side], 1)  # refills the caches after the other side
            found[side].append(turn(calls[side], numbers[side]))
    task.close()
    return {**found, "case": case.id}


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(compare(sys.argv[2])))
        return
    kept = {key(line): line for line in table_lines()}
    installed = [name for name in SCRIPTS if importlib.util.find_spec(SCRIPTS[name][0])]
    for name in sys.argv[1:] or installed:
        runs = [one(name) for _ in range(PROCESSES)]
        ours, theirs = ([t for run in runs for t in run[side]] for side in ("ours", "theirs"))
        ratio = paired_ratio(theirs, ours)
        assert ratio is not None
        alone = [median(t / o for t, o in zip(r["theirs"], r["ours"], strict=True)) for r in runs]
        reached = "yes" if ratio.value >= GOAL else "in doubt" if ratio.high >= GOAL else "no"
        candidate = runs[0]["case"].partition("/")[2]
        line = (
            f"| `{name.partition('/')[0]}` | `{candidate}` | {units.duration(median(ours))} | "
            f"{ratio.value:.3f} ({ratio.low:.3f}-{ratio.high:.3f}) | "
            f"{min(alone):.3f}-{max(alone):.3f} | {reached} |"
        )
        print(line, file=sys.stderr, flush=True)
        kept[key(line)] = line
        write(sorted(kept.values()))


def key(line: str) -> tuple[str, str]:
    """The workload and the candidate of a line of the table, whatever its threads."""
    workload, candidate, *_ = line.split(" | ")
    return workload, candidate.rpartition("/")[0]


def one(name: str) -> dict[str, Any]:
    """One workload in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.workloads", "--one", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def table_lines() -> list[str]:
    _, _, rest = PAGE.read_text().partition(BEGIN)
    return [line for line in rest.partition(END)[0].splitlines() if line.startswith("| `")]


def write(lines: list[str]) -> None:
    head = [
        "| workload | candidate | step | script / workload (95 %) | by process | >= 0.98 |",
        "|---|---|---|---|---|---|",
    ]
    write_block(PAGE, BEGIN, END, "\n".join([*head, *lines]))


if __name__ == "__main__":
    main()
