"""Opens a journal of 200 MB: `python -m benchmarks.big_journal [MEGABYTES] [report]`.

With `report` it opens JSON documents instead, made of such journals.

The blocks of a recorded run are repeated: as many blocks of six samples, which is what most runs
write (about 300 bytes a turn, so 200 MB are days of measuring), as blocks of a thousand, the most
that a worker takes in a turn, and as a few blocks of a million, which only a foreign file has.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RECORDED = HERE.parent / "tests/fixtures/journals/advise-simulated-gpu.jsonl"
SAMPLES = (6, 1_000, 1_000_000)  # per block
FORMATS = ("--json", "--plain")
# Runs a command, and says its peak resident memory in KiB on stderr (getrusage(2)).
PEAK = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


def make(path: Path, size: int, samples: int) -> None:
    """Write a journal of about `size` bytes whose blocks have so many samples."""
    events = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    first = next(place for place, event in enumerate(events) if event["event"] == "BlockMeasured")
    with path.open("w") as file:
        for event in events[: first + 1]:
            file.write(_line(event))
        for block in _blocks([e for e in events if e["event"] == "BlockMeasured"], samples):
            if file.tell() >= size:
                break
            file.write(_line(block))
        for event in events[first + 1 :]:
            file.write(_line(event))


def _blocks(recorded: list[dict[str, Any]], samples: int) -> Iterator[dict[str, Any]]:
    """The recorded blocks round after round, with samples that scatter by a few per cent."""
    random.seed(0)
    for number in range(1000, 1 << 30):
        for block in recorded:
            center = block["samples_s"][0]
            drawn = [round(center * random.uniform(1, 1.05), 10) for _ in range(samples)]
            yield {**block, "round": number, "samples_s": drawn}


def _line(event: dict[str, Any]) -> str:
    return json.dumps(event, separators=(",", ":")) + "\n"


def opened(path: Path, export_as: str) -> tuple[float, float]:
    """Seconds and peak MB of `workbench open PATH --json`, or in another format."""
    command = [sys.executable, "-m", "workbench", "open", str(path), export_as]
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *command], stderr=subprocess.PIPE, text=True, check=False
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(done.stderr)
    return seconds, int(done.stderr.split()[-1]) / 1000


def as_report(path: Path) -> Path:
    """The JSON document of a journal, in a file next to it."""
    report = path.with_suffix(".json")
    words = [sys.executable, "-m", "workbench", "open", str(path), "--json"]
    with report.open("wb") as file:
        subprocess.run(words, stdout=file, check=True)
    return report


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        for samples in SAMPLES:
            path = Path(folder) / "big.jsonl"
            make(path, size * 1_000_000, samples)
            if sys.argv[2:] == ["report"]:
                path = as_report(path)
            for export_as in FORMATS:
                seconds, peak = opened(path, export_as)
                print(
                    f"{path.stat().st_size / 1e6:.1f} MB, {samples} samples a block, {export_as}:"
                    f" {seconds:.2f} s, {peak:.0f} MB"
                )


if __name__ == "__main__":
    main()
