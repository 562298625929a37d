"""Compares the pick of `advise --model` with an exhaustive measurement of every candidate.

`python -m benchmarks.regret [MODEL...]` (make regret) asks for advice on each model of the corpus
at each batch, then builds every form itself, opens it with every thread count and option, and in
OpenVINO where that is installed, and times all of them in turns in one process.  Candidates over
the error limit do not count.  Those that can still be the best after the first pass, and the pick,
are timed again, since the least of many noisy medians is too low.  Where the pick seems more than
2 % slower, new sessions are timed too, and the lower time counts.  Prints Markdown; keeps what it
has in .corpus/regret.jsonl.
"""

import argparse
import math
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from itertools import cycle, product
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from benchmarks import corpus
from benchmarks.shared import Kept, block_s, table, workbench
from workbench.advisor.model.candidates import ModelSpace, Proposal, first
from workbench.contract import Case, WorkloadError
from workbench.machine import detect
from workbench.machine.host.isa import native
from workbench.planning.cases import useful_thread_counts
from workbench.planning.questions import MAX_ERROR
from workbench.records.model import ModelFacts
from workbench.worker.recipe import CALIBRATIONS, ORIGINAL, Recipe
from workbench.worker.session_options import BFLOAT, OPENVINO
from workloads._shared.session import open_session
from workloads.lab import agreement, parts, samples
from workloads.lab.child import Lab

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before onnxruntime is imported
KEPT = corpus.FOLDER / "regret.jsonl"
BLOCK_S, FIRST_ROUNDS, FINAL_ROUNDS = 0.1, 10, 20
SLOW = 1.02  # ratio to the best above which new sessions are timed: some are slow all their life
CLOSE = 1.15  # times the best first median: candidates to time again


def advice(file: Path, source: corpus.Source, batch: int) -> tuple[dict[str, Any], float]:
    """The document of `workbench advise`, and the seconds it took."""
    words = ["advise", "--model", str(file)]
    words += ["--batch", str(batch)] if batch > 1 else []
    for name, shape in source.shapes.items():
        words += ["--shape", f"{name}={shape.replace(corpus.BATCH, str(batch))}"]
    return workbench(*words)


class Exhaustive:
    """Every variant of one model at one batch."""

    def __init__(self, file: Path, source: corpus.Source, batch: int, folder: str) -> None:
        self.model, self.folder, self.lab = str(file), folder, Lab()
        shapes = {
            name: [batch if axis == corpus.BATCH else int(axis) for axis in text.split(",")]
            for name, text in source.shapes.items()
        }
        wanted = batch if batch > 1 else None
        fields = self.lab.inspect(self.model, folder, shapes, None, wanted, 0)
        self.facts = msgspec.convert(fields, ModelFacts)
        self.products = self.lab.prepare(self.model, folder)["products"]
        self.files = {ORIGINAL: self.model}
        self.inputs = samples.read(Path(folder, samples.INPUTS)) or [[]]
        self.references = samples.read(Path(folder, samples.REFERENCE))

    def proposals(self, mixed: Sequence[Recipe]) -> Iterator[Proposal]:
        """The proposals of --thorough, mixed variants of the advice, and sleeping threads."""
        cpu = detect()[0].cpu
        threads = useful_thread_counts(cpu)
        space = ModelSpace(self.facts, self.products, cpu, threads, thorough=True)
        found, _ = first(space)
        for recipe in mixed:
            found += [Proposal(recipe, threads=count) for count in threads]
            found.append(Proposal(recipe, threads=threads[0], mode="nospin"))
        found.append(Proposal(ORIGINAL, threads=threads[-1], mode="extended"))
        if find_spec(OPENVINO):
            plain = [each for each in found if each.mode is None]
            found += [replace(each, backend=OPENVINO) for each in plain]
            if native("bf16", cpu):
                found += [
                    Proposal(ORIGINAL, threads=c, backend=OPENVINO, mode=BFLOAT) for c in threads
                ]
        yield from dict.fromkeys(found)

    def open(self, proposal: Proposal) -> tuple[Any, bool]:
        """A function that runs one step, None without the variant, and whether the variant keeps
        the error limit."""
        try:
            if proposal.recipe not in self.files:
                fields = asdict(proposal.recipe)
                self.files[proposal.recipe] = self.lab.build(self.model, self.folder, fields)[
                    "file"
                ]
            case = Case("model", "cpu", proposal.backend, "fp32", None, proposal.threads)
            case = replace(case, mode=proposal.mode)
            session = open_session(self.files[proposal.recipe], case)
            names = [port.name for port in session.get_inputs()]
            outputs = [port.name for port in session.get_outputs()]
            feeds = [dict(zip(names, sample, strict=True)) for sample in self.inputs]
            answers = [session.run(None, feed) for feed in feeds]
            cut = parts.read(Path(self.folder), outputs)
            compared = agreement.compare(outputs, answers, self.references, cut)
        except WorkloadError:
            return None, False
        turn = cycle(feeds)
        keeps = agreement.summary(compared, "relative_error") <= MAX_ERROR
        return lambda: session.run(None, next(turn)), keeps


def times(runners: dict[str, Any], rounds: int) -> dict[str, float]:
    """Seconds of each candidate: the median over rounds of its medians in a block."""
    found: dict[str, list[float]] = {name: [] for name in runners}
    for number in range(rounds):
        for name in list(runners)[:: 1 if number % 2 == 0 else -1]:
            found[name].append(block_s(runners[name], BLOCK_S))
    return {name: median(values) for name, values in found.items()}


def name_of(proposal: Proposal, facts: ModelFacts) -> str:
    variant = facts.precision if proposal.recipe == ORIGINAL else proposal.recipe.label
    return _name(variant, proposal.backend, proposal.mode, proposal.threads)


def _name(variant: str, backend: str, mode: str | None, threads: int | None) -> str:
    library = backend if backend == OPENVINO else None
    return "/".join(filter(None, (variant, library, mode, f"t{threads}")))


def picked(document: dict[str, Any]) -> str:
    """The pick's name in the format of `name_of`."""
    pick = document["verdicts"][0]["pick"]
    case = next(m["case"] for m in document["measurements"] if m["id"] == pick)
    variant = "-".join(filter(None, (case["precision"], case["quantization"])))
    return _name(variant, case["backend"], case["mode"], case["threads"])


def mixed_recipes(document: dict[str, Any]) -> list[Recipe]:
    """The recipes of the advice's mixed variants, found by their names."""
    found = []
    for built in document["model"]["built"]:
        both = (False, True)
        axes = product(("products", "all"), ("u8", "s8"), both, both, CALIBRATIONS)
        for scope, activations, per_channel, reduce_range, calibration in axes:
            recipe = Recipe("int8", "static", scope, activations, per_channel, reduce_range)
            recipe = replace(recipe, calibration=calibration, excluded=tuple(built["excluded"]))
            if built["excluded"] and built["reason"] is None and recipe.label == built["recipe"]:
                found.append(recipe)
    return found


def judge(file: Path, source: corpus.Source, batch: int) -> dict[str, Any]:
    """One row of the table."""
    document, advised_s = advice(file, source, batch)
    pick, began = picked(document), time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="regret-") as folder:
        every = Exhaustive(file, source, batch, folder)
        everyone, runners, proposals = {}, {}, {}
        for proposal in every.proposals(mixed_recipes(document)):
            runner, keeps = every.open(proposal)
            name = name_of(proposal, every.facts)
            if runner is not None:
                everyone[name] = runner
            if keeps:
                runners[name], proposals[name] = runner, proposal
        first_times = {n: t for n, t in times(everyone, FIRST_ROUNDS).items() if n in runners}
        exhaustive_s = time.perf_counter() - began
        best = min(first_times.values())
        close = [name for name, value in first_times.items() if value <= CLOSE * best]
        again = dict.fromkeys([*close, pick, *(n for n in runners if n.startswith("fp32/t"))])
        valid = pick in runners
        final = times({name: runners[name] for name in again if name in runners}, FINAL_ROUNDS)
        if valid and final[pick] > SLOW * min(final.values()):
            fresh = {name: every.open(proposals[name])[0] for name in final}
            second = times(fresh, FINAL_ROUNDS)
            final = {name: min(value, second[name]) for name, value in final.items()}
    winner = min(final, key=final.__getitem__)
    most = max(int(name.rpartition("/t")[2]) for name in final)
    warnings = [*document["warnings"], *document["verdicts"][0]["warnings"]]
    codes = {warning["code"] for warning in warnings}
    return {
        "model": source.name,
        "kind": source.kind,
        "batch": batch,
        "candidates": len(everyone),
        "pick": pick,
        "best": winner,
        "regret": final[pick] / final[winner] if valid else None,
        "valid": valid,
        "best_ms": final[winner] * 1e3,
        "fp32_ratio": final[f"fp32/t{most}"] / final[winner] if f"fp32/t{most}" in final else None,
        "advised_s": advised_s,
        "exhaustive_s": exhaustive_s,
        "size_bytes": file.stat().st_size,
        "settled": "pick_unsettled" not in codes,
        "busy": bool(codes & {"busy_machine", "overloaded_machine"}),
    }


HEADER = ("model", "kind", "batch", "pick", "pick / best", "best", "fp32, all cores / best")
HEADER += ("advice", "of exhaustive")


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        plain = row["fp32_ratio"]
        lines.append(
            (
                row["model"],
                row["kind"],
                str(row["batch"]),
                row["pick"],
                "over the limit" if row["regret"] is None else f"{row['regret']:.3f}",
                "the same" if row["pick"] == row["best"] else row["best"],
                "-" if plain is None else f"{plain:.2f}",
                f"{row['advised_s']:.1f} s",
                f"{row['advised_s'] / row['exhaustive_s']:.0%}",
            )
        )
    return f"{table(HEADER, lines)}\n\n{summary(rows)}"


def summary(rows: Sequence[dict[str, Any]]) -> str:
    known = [row["regret"] for row in rows if row["regret"] is not None]
    plain = [row["fp32_ratio"] for row in rows if row["fp32_ratio"] is not None]
    elsewhere = sum(f"/{OPENVINO}/" in row["pick"] for row in rows)
    advised_s = [row["advised_s"] for row in rows]
    share = sum(advised_s) / sum(row["exhaustive_s"] for row in rows)
    return (
        f"{len(rows)} cases: geometric mean of pick / best {geometric(known):.3f}, worst "
        f"{max(known, default=math.nan):.3f}; {len(rows) - len(known)} picks over the error limit. "
        f"FP32 on all cores: {geometric(plain):.2f}. OpenVINO is the pick in {elsewhere}. Advice "
        f"took {share:.0%} of the exhaustive time, {max(advised_s):.1f} s at most."
    )


def geometric(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="of the corpus; default all")
    parser.add_argument("--again", action="store_true", help="forget what was kept")
    arguments = parser.parse_args()
    sources = corpus.chosen(arguments.models)
    files = corpus.fetch(sources)
    kept = Kept(KEPT, again=arguments.again)
    for source in sources:
        for batch in source.batches:
            if any((r["model"], r["batch"]) == (source.name, batch) for r in kept):
                continue
            kept.add(judge(files[source.name], source, batch))
    wanted = {source.name for source in sources}
    print(markdown([row for row in kept if row["model"] in wanted]))


if __name__ == "__main__":
    main()
