"""Thousands of damaged models for the lab's worker: each gets an answer, and nothing else happens.

`python benchmarks/fuzz_models.py --count 10000 --seed 0`; `--first N --count 1` repeats one of
them.  A native crash or a timeout is printed and counted, but is no violation, since the engine
reports either as a failure.
"""

import argparse
import json
import os
import random
import select
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

# The package `workloads`, not the file of that name in this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import msgspec
from mutations import EXTERNAL, mutate, seeds

from workbench import catalog
from workbench.pool.worker_process import WorkerKey, WorkerProcess, WorkerSettings
from workbench.records.model import ModelFacts
from workbench.worker.recipe import Recipe

DEADLINE_S = 20.0
MEMORY_BYTES = 2 << 30
BUILD_EVERY = 2  # every second mutation is prepared and built too, if it can be inspected
RECIPES = (
    Recipe("int8", "dynamic"),
    Recipe("int8", "static"),
    Recipe("int8", "static", scope="products", per_channel=True),
    Recipe("fp16"),
)
LONGEST_MESSAGE = 1000
FORBIDDEN = ("internal", "failed")  # codes of unforeseen errors


@dataclass
class Tally:
    """Outcomes of the mutations."""

    answers: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def table(self) -> str:
        rows = sorted(self.answers.items(), key=lambda row: -row[1])
        return "\n".join(f"{count:8d}  {what}" for what, count in rows)


class Folders:
    """The folder that the worker may write to (`lab`), and those that it must not."""

    def __init__(self, root: Path) -> None:
        self.models, self.lab = root / "models", root / "lab"
        self.cwd, self.home, self.temporary = root / "cwd", root / "home", root / "tmp"
        for folder in (self.models, self.lab, self.cwd, self.home, self.temporary):
            folder.mkdir()

    def elsewhere(self) -> dict[str, tuple[int, int]]:
        """Every file outside `lab`, with its size and the time it was written."""
        found = {}
        for folder in (self.models, self.cwd, self.home, self.temporary):
            for path in folder.rglob("*"):
                status = path.lstat()
                found[str(path)] = (status.st_size, status.st_mtime_ns)
        return found

    def clear(self) -> None:
        """Empty the folders; in a run, files of a killed worker in TMPDIR go at the end."""
        for folder in (self.lab, self.temporary):
            shutil.rmtree(folder)
            folder.mkdir()


class Child:
    """The lab's worker as the engine starts it, restarted when it dies."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._process: WorkerProcess | None = None
        self.starts = 0

    def ask(self, request: dict[str, Any]) -> dict[str, Any] | str:
        """The answer, or "died" or "timeout"."""
        if self._process is None:
            key = WorkerKey("cpu", catalog.LAB)
            settings = WorkerSettings("fuzz", sys.executable, 1, MEMORY_BYTES, hide_gpus=True)
            self._process = WorkerProcess(key, settings, self._folders.temporary)
            self.starts += 1
            if not isinstance(self._await({"op": "hello"}, 60.0), dict):
                raise SystemExit("the lab's child does not start")
        found = self._await(request, DEADLINE_S)
        if isinstance(found, str):
            self.close()
        return found

    def _await(self, request: dict[str, Any], seconds: float) -> dict[str, Any] | str:
        assert self._process is not None
        try:
            self._process.request(request)
        except OSError:
            return "died"
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            select.select([self._process.fileno()], [], [], left)
            try:
                line = self._process.answer()
            except EOFError:
                return "died"
            if line is not None:
                return dict(json.loads(line))
        return "timeout"

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None


@contextmanager
def surroundings() -> Iterator[Folders]:
    """A temporary home and working folder, to notice any file that is written there."""
    before, home = Path.cwd(), os.environ.get("HOME")
    with tempfile.TemporaryDirectory(prefix="fuzz-") as root:
        folders = Folders(Path(root))
        os.environ["HOME"] = str(folders.home)
        os.chdir(folders.cwd)
        try:
            yield folders
        finally:
            os.chdir(before)
            os.environ.pop("HOME")
            if home is not None:
                os.environ["HOME"] = home


def fuzz(count: int, seed: int, first: int = 0) -> Tally:
    """Send `count` mutations to the worker; `tally.violations` is empty if all went well."""
    tally = Tally()
    with surroundings() as folders:
        models = seeds(folders.models)
        child = Child(folders)
        try:
            for name in models:
                _require_sound(child, folders, name, models[name])
            for number in range(first, first + count):
                rng = random.Random(f"{seed}:{number}")
                words, data = mutate(rng, models)
                (folders.models / "model.onnx").write_bytes(data)
                place = f"--seed {seed} --first {number} --count 1 ({words})"
                _try(child, folders, tally, place, build=number % BUILD_EVERY == 0, rng=rng)
        finally:
            child.close()
    tally.answers["children started"] = child.starts
    return tally


def _require_sound(child: Child, folders: Folders, name: str, data: bytes) -> None:
    """Check that an undamaged seed passes, or fuzzing would show nothing."""
    (folders.models / "model.onnx").write_bytes(data)
    answer = child.ask(_inspect(folders, name == EXTERNAL))
    if not isinstance(answer, dict) or "ok" not in answer:
        raise SystemExit(f"the seed model {name} is refused: {answer}")
    folders.clear()


def _inspect(folders: Folders, batch: bool) -> dict[str, Any]:
    given = {"shapes": {}, "inputs": None, "batch": 2 if batch else None, "seed": 0}
    return {"op": "inspect", **_place(folders), **given}


def _place(folders: Folders) -> dict[str, str]:
    return {"model": str(folders.models / "model.onnx"), "folder": str(folders.lab)}


def _try(
    child: Child, folders: Folders, tally: Tally, place: str, *, build: bool, rng: random.Random
) -> None:
    requests = [_inspect(folders, rng.random() < 0.1)]
    if build:
        recipe, place_of = asdict(rng.choice(RECIPES)), _place(folders)
        requests += [{"op": "prepare", **place_of}, {"op": "build", **place_of, "recipe": recipe}]
    before = folders.elsewhere()
    for request in requests:
        answer = child.ask(request)
        operation = request["op"]
        if isinstance(answer, str):
            tally.answers[f"{operation}: {answer}"] += 1
            print(f"{operation} {answer}: {place}", flush=True)
            folders.clear()
            return
        wrong = _wrong(operation, answer)
        outcome = "ok" if "ok" in answer else answer.get("error", {}).get("code")
        tally.answers[f"{operation}: {outcome}"] += 1
        if wrong is None and folders.elsewhere() != before:
            wrong = (
                f"files changed: {sorted(set(folders.elsewhere().items()) ^ set(before.items()))}"
            )
        if wrong is not None:
            tally.violations.append(f"{operation}: {wrong}: {place}")
            print("VIOLATION", tally.violations[-1], flush=True)
        if outcome != "ok":
            break
    folders.clear()


def _wrong(operation: str, answer: dict[str, Any]) -> str | None:
    """The rule that an answer breaks, if any."""
    if "ok" in answer:
        if operation == "inspect":
            try:
                msgspec.convert(answer["ok"], ModelFacts)
            except msgspec.ValidationError as error:
                return f"no ModelFacts: {error}"
        return None
    error = answer.get("error", {})
    message = error.get("message")
    if not isinstance(message, str) or not message:
        return f"an error without a message: {answer}"
    if not message.isprintable() or "Traceback" in message or len(message) > LONGEST_MESSAGE:
        return f"no single clear line: {message!r}"
    if error.get("code") in FORBIDDEN:
        return f"{error['code']}: {message}"
    if not error.get("hint"):
        return f"no hint: {message}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="mutations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first mutation")
    asked = parser.parse_args()
    began = time.monotonic()
    tally = fuzz(asked.count, asked.seed, asked.first)
    print(f"{asked.count} mutations in {time.monotonic() - began:.0f} s, seed {asked.seed}")
    print(tally.table())
    print(f"{len(tally.violations):8d}  violations")
    sys.exit(1 if tally.violations else 0)


if __name__ == "__main__":
    main()
