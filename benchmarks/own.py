"""Compares the pick of `advise --torch` with a measurement of every candidate by a plain script.

`python -m benchmarks.own` (make own) asks for advice on each module of own_corpus.py.  Then a child
for each batch makes every candidate by itself, checks it and times all in turns, on the CPU, with
the weights, inputs and exported graph that the tool makes.  Keeps what it has in .own.jsonl, so it
can be cut short; a later line of the same kind counts.
"""

import argparse
import copy
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import msgspec
import torch

from benchmarks.own_corpus import CORPUS, HELD_OUT
from benchmarks.shared import ROOT, Kept, Row, block_s, table
from workbench.advisor.model.candidates import ModelSpace, first
from workbench.contract import Case
from workbench.machine import detect
from workbench.machine.host.disturbance import DisturbanceMonitor
from workbench.planning.cases import useful_thread_counts
from workbench.records.model import ModelFacts
from workbench.records.reason import NOISE
from workbench.worker import allocator
from workbench.worker.code import Code
from workloads._shared.session import open_session
from workloads.lab import agreement, parts, samples
from workloads.lab.child import Lab
from workloads.own.subject import folder_of, subject_of
from workloads.own.tree import tensors
from workloads.own.workload import WORKLOAD

KEPT = ROOT / "benchmarks" / ".own.jsonl"
STATE = ROOT / "benchmarks" / ".own-state"  # the tool's: what torch knows about the compiler stays
FORMS = "", "compile"
CLOSE, FAR = 1.15, 3.0  # times the best: timed again; timed once
KEEP = 2.0  # times the best: not tried with freed memory kept, which has not gained as much
MISSED = 1.02  # times the best: then a second process judges the pick as well
EMULATED = 5.0  # times FP32 in eager mode: no compiler makes up for a precision's emulation
USUAL = {"eager": "torch/fp32", "compile": "torch/fp32/compile", "BF16": "torch/bf16"}
USUAL["ONNX"] = "onnxruntime/fp32"


def advice(name: str, budget_s: float | None) -> Row:
    """The tool's picks, asked as a user would who has never run it on this module."""
    command = [sys.executable, "-m", "workbench", "advise", "--device", "cpu", "--json"]
    command += ["--torch", f"benchmarks.own_corpus:{name}"]
    command += [f"--budget={budget_s:g}"] if budget_s else []
    batches = ",".join(map(str, CORPUS[name].batches))
    command += ["--batch", batches] if batches else []
    environment, began = {**os.environ, "XDG_STATE_HOME": str(STATE)}, time.perf_counter()
    done = subprocess.run(command, capture_output=True, cwd=ROOT, env=environment, text=True)
    row = {"name": name, "seconds": time.perf_counter() - began, "first_s": first_figure_s()}
    try:
        return row | parsed(json.loads(done.stdout))
    except ValueError:
        return row | {"picks": {}, "raced": {}, "failed": done.stderr.strip()[-300:]}


def first_figure_s() -> float | None:
    """Seconds from the start of the latest run until its first block, which the screens show."""
    journals = (STATE / "workbench" / "runs").glob("*.jsonl")
    latest = max(journals, key=lambda path: path.stat().st_mtime)
    events = map(json.loads, latest.read_text().splitlines())
    return next((each["at_s"] for each in events if each["event"] == "BlockMeasured"), None)


def parsed(document: Row) -> Row:
    """Picks by batch ("1" where there is none), and seconds, error and limit of all that raced."""
    picks, raced = Row(), Row()
    picked = {verdict["pick"] for verdict in document["verdicts"]}
    for each in document["measurements"]:
        batch, accuracy = str(each["case"]["batch"] or 1), each["accuracy"] or {}
        label = each["id"].rpartition("]/")[2].removeprefix("cpu/")  # torch/bf16/nhwc/t2
        seconds = median(each["samples_s"]) if each["samples_s"] else None
        raced.setdefault(batch, {})[label] = [seconds, *map(accuracy.get, ("value", "limit"))]
        if each["id"] in picked:
            picks[batch] = label
    disturbed = [each["code"] for each in document["warnings"] if each["code"] in NOISE]
    return {"picks": picks, "raced": raced, "disturbed": disturbed}


class Plain:
    """Every candidate of a module at one batch, made by the shortest code that does it."""

    def __init__(self, name: str, batch: int, folder: str, memory: str) -> None:
        self.memory = memory  # a word of the mode of its candidates of torch: "keep", or none
        torch._dynamo.config.recompile_limit = 1000  # candidates share their code
        self.folder, self.cpu = folder, detect()[0].cpu
        self.threads = useful_thread_counts(self.cpu)
        self.code = Code("torch", f"benchmarks.own_corpus:{name}", folder, str(ROOT))
        self.batches = CORPUS[name].batches or (None,)  # in the order in which the tool is asked
        self.batch = batch if CORPUS[name].batches else None
        one = subject_of(self.code)
        self.module, self.arguments = one.module, one.example(self.batch).args
        doubles = [x.double() if x.is_floating_point() else x for x in self.arguments]
        with torch.inference_mode():
            self.reference = self.arrays(copy.deepcopy(self.module).double()(*doubles))
            self.floors = self.errors(self.module(*self.arguments))
        self.steps: dict[str, Any] = {}
        self.kept: set[str] = set()  # names of those that keep the error limit
        self.failed: dict[str, str] = {}
        self.parts: list[list[agreement.Part]] = []  # by output: the parts judged in INT8
        self.rough: dict[str, float] = {}  # seconds of one call

    def in_torch(self) -> list[str]:
        """Every combination of threads, precision, layout and compiler; what happens to freed
        memory is the same for all in this process."""
        layers = {type(layer).__name__ for layer in self.module.modules()}
        layouts = ("", "nhwc") if layers & {"Conv2d", "Conv3d"} else ("",)
        modes = ["+".join(filter(None, each)) for each in product(layouts, FORMS, [self.memory])]
        found = product(("fp32", "bf16"), modes, self.threads)
        return [f"torch/{p}/{mode}/t{count}".replace("//", "/") for p, mode, count in found]

    def exported(self) -> list[str]:
        """Every variant, thread count and option that the lab would try on the ONNX model.

        It is the tool's own export: another one may be faster or slower with the same label.
        """
        text = self.code.as_text()
        WORKLOAD.consult("examine", code=text)
        made = WORKLOAD.consult("export", code=text, batches=self.batches)
        torch.backends.mha.set_fastpath_enabled(True)  # exporting has a process of its own there
        if not made["dynamic"] and self.batch != self.batches[0]:
            raise LookupError("the exported graph takes one batch only")
        self.model = made["model"]
        self.lab, self.files = Lab(), {"fp32": self.model}
        given = str(folder_of(self.code, self.batches[0]))
        facts = self.lab.inspect(self.model, self.folder, {}, None, None, 0, given)
        products = self.lab.prepare(self.model, self.folder)["products"]
        facts = msgspec.convert(facts, ModelFacts)
        self.parts = parts.read(Path(self.folder), [port.name for port in facts.outputs])
        space = ModelSpace(facts, products, self.cpu, self.threads, thorough=True)
        found = [each for each in first(space)[0] if each.recipe.calibration == "minmax"]
        self.recipes = {each.recipe.label: asdict(each.recipe) for each in found}
        names = (f"onnxruntime/{x.recipe.label}/{x.mode or ''}/t{x.threads}" for x in found)
        return [name.replace("//", "/") for name in names]

    def step(self, name: str) -> tuple[int, Any]:
        """Threads, and a function that does one call; raises where there can be none."""
        backend, precision, *mode, threads = name.split("/")
        count = int(threads[1:])
        torch.set_num_threads(count)
        make = self.session if backend == "onnxruntime" else self.eager_or_compiled
        return count, make(precision, "".join(mode), count)

    def eager_or_compiled(self, precision: str, mode: str, _: int) -> Any:
        module, given = copy.deepcopy(self.module), self.arguments
        words = set(mode.split("+")) - {""}
        if precision not in ("fp32", "bf16") or words - {"nhwc", "compile", self.memory}:
            raise LookupError("the plain script has no such candidate")
        layout = torch.channels_last if given[0].dim() == 4 else torch.channels_last_3d
        nhwc = "nhwc" in words
        module = module.to(memory_format=layout) if nhwc else module
        called = torch.compile(module, dynamic=False) if "compile" in words else module

        def step() -> Any:
            with torch.inference_mode(), torch.autocast("cpu", enabled=precision == "bf16"):
                return called(given[0].contiguous(memory_format=layout)) if nhwc else called(*given)

        return step

    def session(self, precision: str, mode: str, threads: int) -> Any:
        if precision not in self.files:
            recipe = (self.model, self.folder, self.recipes[precision.removesuffix("-mixed")])
            if precision.endswith("-mixed"):
                wanted: Row = {"metric": "relative_error", "limit": 0.02, "seconds": 30.0}
                built = self.lab.mixed(*recipe, **wanted)
            else:
                built = self.lab.build(*recipe)
            self.files[precision] = built["file"]
        case = Case("own", "cpu", "onnxruntime", "fp32", threads=threads, mode=mode or None)
        session = open_session(self.files[precision], case)
        (given,) = samples.read(folder_of(self.code, self.batch) / samples.INPUTS)
        feeds = dict(zip((port.name for port in session.get_inputs()), given, strict=True))
        return lambda: session.run(None, feeds)

    def arrays(self, output: Any) -> list[Any]:
        found = output if isinstance(output, list) else tensors(output).values()
        return [torch.as_tensor(each).double().numpy() for each in found]

    def errors(self, output: Any, cut: Sequence[list[agreement.Part]] = ()) -> list[float]:
        names = list(map(str, range(len(self.reference))))
        found = agreement.compare(names, [self.arrays(output)], [self.reference], cut)
        return [each.relative_error for each in found]

    def keeps(self, name: str, output: Any) -> bool:
        """torchbench's rule: a multiple of the error of eager FP32, plus a tolerance."""
        exact = name.split("/")[1] == "fp32"
        errors = self.errors(output, self.parts if "int8" in name else ())
        triples = zip(errors, self.floors, self.reference, strict=True)
        return all(
            error <= (2 if exact and known.size >= 1000 else 3) * floor + (1e-4 if exact else 0.02)
            for error, floor, known in triples
        )

    def timed(self, names: list[str], rounds: int, seconds: float) -> dict[str, float]:
        """Seconds of each candidate: the median over rounds of its medians in a block."""
        found: dict[str, list[float]] = {name: [] for name in names}
        for number in range(rounds):
            best = min((median(found[name]) for name in self.kept if found.get(name)), default=0.0)
            for name in names[:: 1 if number % 2 == 0 else -1]:
                if number and median(found[name]) > FAR * best:
                    continue
                threads, step = self.steps[name]
                torch.set_num_threads(threads)
                least = 1 if self.rough[name] > seconds else 3
                found[name].append(block_s(step, seconds, least))
        return {name: median(blocks) for name, blocks in found.items()}

    def add(self, name: str) -> None:
        """Make and check a candidate; a precision that is hopeless in eager is not compiled."""
        try:
            self.refuse_emulated(name)
            made = self.step(name)
            if self.keeps(name, made[1]()):
                self.kept.add(name)
            began = time.perf_counter()
            made[1]()
            self.rough[name] = time.perf_counter() - began
            self.steps[name] = made
        except Exception as error:
            self.failed[name] = repr(error)[:300]

    def refuse_emulated(self, name: str) -> None:
        precision = name.split("/")[1]
        eager = [s for x, s in self.rough.items() if x.startswith(f"torch/{precision}/")]
        lag = min(eager, default=0.0) / min(self.rough.values(), default=1.0)
        if "compile" in name and lag > EMULATED:
            raise LookupError(f"not compiled, since eager {precision} takes {lag:.1f}x")


def measure(
    name: str,
    batch: int,
    raced: list[str],
    rounds: int,
    seconds: float,
    memory: str,
    slow: list[str],
) -> Row:
    """The time of every candidate, of `raced` too, and which of them keep the error limit.

    With the `memory` "keep" it is that of the candidates of torch that keep freed memory, without
    those that are `slow` when they do not keep it.
    """
    if memory:
        allocator.keep()
    else:
        allocator.settle()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": folder, "ORT_DISABLE_TELEMETRY": "1"}
        plain = Plain(name, batch, folder, memory)
        every = [x for x in plain.in_torch() if returning(x) not in slow]
        try:
            every += [] if memory else plain.exported()
        except Exception as error:
            plain.failed["onnxruntime"] = repr(error)[:300]
        here = [label for label in raced if ("keep" in label) == bool(memory)]
        for label in dict.fromkeys([*every, *here]):
            plain.add(label)
        monitor = DisturbanceMonitor(plain.cpu.effective_cores, lambda: [os.getpid()])
        times = plain.timed(list(plain.steps), rounds, seconds)
        best = min((times[label] for label in plain.kept), default=0.0)
        over = {x for x in times if "-static" in x and x.count("/") == 2} - plain.kept
        fastest = min(over, key=times.__getitem__, default=None)
        if fastest and times[fastest] < best and "mixed" not in fastest:
            plain.add(fastest.replace("/t", "-mixed/t"))
        whole = time.perf_counter() - began
        close = [label for label in plain.steps if times.get(label, 0.0) <= CLOSE * best]
        times |= plain.timed(close, 2 * rounds, seconds)
    row = {"name": name, "batch": batch, "seconds": whole, "times": times}
    row["disturbed"] = [warning.code for warning in monitor.warnings(name)]
    return row | {"kept": sorted(plain.kept & set(times)), "failed": plain.failed}


def returning(name: str) -> str:
    """The name of the same candidate in a process that returns freed memory."""
    return name.replace("+keep", "").replace("/keep", "")


def report(known: dict[tuple[str, int | None], Row]) -> str:
    """The table, and a summary of each half of the corpus."""
    head = ("module", "batch", "pick", "pick / best", "best", "best, ms", *USUAL)
    head += ("advice, s", "of exhaustive", "disturbed")
    lines = []
    halves: dict[bool, list[tuple[Any, ...]]] = {False: [], True: []}
    for (name, batch), row in known.items():
        if batch is None:
            continue
        times, advised = row["times"], known[name, None]
        # Calibrated on other inputs, an INT8 form may exceed the limit in one measurement only.
        over = {
            x
            for x, (_, error, limit) in advised["raced"].get(str(batch), {}).items()
            if (error or 0) > (limit or 0)
        }
        kept = [x for x in row["kept"] if x not in over]
        best = min(kept, key=times.__getitem__)
        ratios = {label: value / times[best] for label, value in times.items()}
        pick = advised["picks"].get(str(batch), "none")
        most = max(int(label.rpartition("/t")[2]) for label in times)
        usual = [ratios.get(f"{label}/t{most}") for label in USUAL.values()]
        whole = sum(each["seconds"] for (x, y), each in known.items() if x == name and y)
        figures = (ratios.get(pick) if pick in kept else None, *usual, advised["seconds"])
        halves[name in HELD_OUT].append((*figures, advised["seconds"] / whole))
        cells = (name, batch, pick, figures[0], best, times[best] * 1e3, *figures[1:])
        disturbed = {*advised.get("disturbed", ()), *row.get("disturbed", ())}
        lines.append((*cells, advised["seconds"] / whole, " ".join(sorted(disturbed))))
    shown = [[f"{x:.3f}" if isinstance(x, float) else str(x or "-") for x in y] for y in lines]
    text = table(head, shown)
    for held_out, found in halves.items():
        columns = [[x for x in column if x] for column in zip(*found, strict=True)]
        if not columns:
            continue
        means = [geometric_mean(column or [math.nan]) for column in columns]
        usual = ", ".join(f"{x} {y:.2f}" for x, y in zip(USUAL, means[1:], strict=False))
        text += (
            f"\n\n{'Held out' if held_out else 'Looked at'}: {len(found)} cases; geometric mean of"
            f" pick / best {means[0]:.3f}, worst {max(columns[0], default=math.nan):.3f};"
            f" {len(found) - len(columns[0])} picks missing or over the error limit; {usual};"
            f" advice in {max(columns[-2]):.0f} s and {max(columns[-1]):.0%} at most."
        )
    if firsts := [first for row in known.values() if (first := row.get("first_s"))]:
        text += (
            f"\n\nThe first figure stood after {median(firsts):.1f} s, at most {max(firsts):.1f}."
        )
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=CORPUS, metavar="NAME")
    parser.add_argument("--held-out", action="store_true", help="that half alone")
    parser.add_argument("--again", choices=("advice", "times"), help="what to measure once more")
    parser.add_argument("--report", action="store_true", help="print what is known")
    parser.add_argument("--budget", type=float, help="instead of the tool's own")
    for name, default in (("--rounds", 10), ("--seconds", 0.1)):
        parser.add_argument(name, type=type(default), default=default)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(measure(*json.loads(given.child))))
        return
    kept = Kept(KEPT)
    known = {(row["name"], row.get("batch")): row for row in kept}
    wanted = given.only or [x for x in CORPUS if x in HELD_OUT or not given.held_out]
    for name in () if given.report else wanted:
        asked = known.get((name, None), {"failed": "not asked"})
        if "failed" in asked or given.again == "advice":
            known[name, None] = asked = advice(name, given.budget)
            kept.add(asked)
        for batch in CORPUS[name].batches or (1,):
            pick, raced = asked["picks"].get(str(batch)), asked["raced"].get(str(batch), {})
            there = known.get((name, batch))
            new = there and pick not in {None, *there["times"], *there["failed"]}
            if there is None or new or given.again == "times":
                order = [name, batch, list(raced), given.rounds, given.seconds]
                if row := measured(order):
                    times = row["times"]
                    if times.get(pick, 0.0) > MISSED * min(map(times.__getitem__, row["kept"])):
                        # In some processes a session is slow from start to end.
                        again = (measured(order) or row)["times"]
                        row["times"] = {x: min(s, again.get(x, s)) for x, s in times.items()}
                    known[name, batch] = row
                    kept.add(row)
    print(report({key: row for key, row in known.items() if key[0] in wanted}))


def measured(wanted: list[Any]) -> Row | None:
    """The row that two child processes measure, of which one keeps freed memory; None if one
    failed, with its error on the screen."""
    usual = child([*wanted, "", []])
    if usual is None:
        return None
    best = min(usual["times"][name] for name in usual["kept"])
    slow = [name for name, seconds in usual["times"].items() if seconds > KEEP * best]
    keeping = child([*wanted, "keep", slow])
    if keeping is None:
        return None
    both = {name: usual[name] + keeping[name] for name in ("seconds", "disturbed", "kept")}
    return usual | both | {name: usual[name] | keeping[name] for name in ("times", "failed")}


def child(wanted: list[Any]) -> Row | None:
    command = [sys.executable, "-m", "benchmarks.own", "--child", json.dumps(wanted)]
    done = subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT)
    return None if done.returncode else json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
