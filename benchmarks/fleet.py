"""The folder of a made-up fleet, and the processor time that its table takes over that of one node.

python -m benchmarks.fleet [NODES]
"""

import copy
import json
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.advisor.fleet import fleet_document, priced
from workbench.cli.program import head
from workbench.export.view.fleet import sections
from workbench.export.view.section import section_text
from workbench.fleet.reader import read_folder

SOURCE = Path(__file__).parent.parent / "tests/fixtures/documents/advise-prices.json"
TYPES = {"old": 1.0, "new": 0.5, "next": 0.49}  # node type to its time; the last two are alike
START = "2026-11-22T09:00:07Z"  # a minute before the run of the source began
STATISTICS = ("median_s", "p10_s", "p90_s", "p99_s", "min_s", "ci95_s")


def document(factor: float, host: str) -> dict[str, Any]:
    """The source as a machine that takes `factor` of its time, long enough for percentiles."""
    found: dict[str, Any] = copy.deepcopy(json.loads(SOURCE.read_text()))
    found["machine"]["hostname"] = host
    for measured in found["measurements"]:
        slow = _scaled(measured["samples_s"], factor)
        if measured["scenario"] == "realtime":
            slow, blocks = slow * 12, measured["blocks"]
            measured["blocks"] = [{**block, "n": block["n"] * 12} for block in blocks]
        measured["samples_s"] = slow
        measured |= {name: _scaled(measured[name], factor) for name in STATISTICS}
    return {**found, "code": None}


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, list):
        return [_scaled(each, factor) for each in value]
    return value if value is None else value * factor


def write(at: Path, found: Any) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_text(found if isinstance(found, str) else json.dumps(found))


def make(folder: Path, nodes: int, types: Mapping[str, float] = TYPES) -> None:
    """A fleet of so many nodes in turn of each type; equal nodes lie within 2% of each other."""
    jobs = []
    for number in range(nodes):
        kind = list(types)[number % len(types)]
        name = f"{kind}-{number // len(types) + 1}"
        jobs.append({"name": name, "node_type": kind, "node": f"n{number}"})
        at = folder / "jobs" / name
        write(at / "submitted.json", {"job_id": str(number), "at": START})
        away = 1 + 0.01 * (number // len(types) % 3 - 1)
        write(at / "document.json", document(types[kind] * away, f"n{number}"))
    kinds = [{"name": name, "cores": 2, "memory_bytes": 0} for name in types]
    plan = {"fleet_version": 1, "created_at": START, "tool_version": "0.1.0", "engine": "slurm"}
    plan |= {"arguments": ["--quick"], "python": "python3", "deadline_s": 1800.0}
    write(folder / "fleet.json", {**plan, "node_types": kinds, "jobs": jobs})


def shown_s(folder: Path) -> float:
    """Seconds of the processor to read the folder, merge it and make its text."""
    began = time.process_time()
    found = priced(fleet_document(head("fleet"), read_folder(folder, time.time())), {"cpu": 0.1})
    section_text(sections(found), 100)
    return time.process_time() - began


def main(nodes: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        one, many = Path(scratch, "one"), Path(scratch, "many")
        make(one, 1)
        make(many, nodes)
        single = min(shown_s(one) for _ in range(5))
        whole = min(shown_s(many) for _ in range(3))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    times = f"{whole:.2f} s of the processor, {whole / single:.0f} times one node"
    print(f"{nodes:,} nodes: {times}, {peak:.0f} MiB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
