"""Lists 10,000 kept runs: `python -m benchmarks.history [RUNS]`.

The journals are made up and tiny.  The index is built once; then the list is timed warm: in this
process, and as `workbench runs`, whose wall time includes the interpreter and its imports.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

from workbench.records import events as ev
from workbench.records.comparison import RunSummary
from workbench.records.document import SCHEMA_VERSION, Tool
from workbench.report import history, journal

SHOWN, REPEATS = 20, 15


def make(folder: Path, count: int) -> None:
    """Write the journals of `count` runs that ended after three seconds."""
    folder.mkdir(parents=True)
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(count):
        moment = begin + timedelta(minutes=number)
        name = f"{moment:%Y%m%d-%H%M%S}-{number % 65536:04x}"
        started = ev.RunStarted(
            at_s=0.1,
            schema_version=SCHEMA_VERSION,
            id=name,
            started_at=moment.isoformat(),
            budget_s=60.0,
            tool=Tool("workbench", "0.1.0", "workbench advise realtime --quick"),
        )
        finished = ev.RunFinished(
            at_s=3.0, status="done", finished_at=name, duration_s=3.0, exit_code=0
        )
        lines = (ev.encode(event) + b"\n" for event in (started, finished))
        (folder / f"{name}.jsonl").write_bytes(b"".join(lines))


def newest() -> list[RunSummary]:
    found = history.matching(history.refreshed())
    return [summary for _, summary in islice(found, SHOWN)]


def seconds(job: object) -> float:
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def command() -> None:
    subprocess.run([sys.executable, "-m", "workbench", "runs"], check=True, capture_output=True)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        make(journal.runs_folder(), count)
        print(f"{count:,} runs; the index is built in {seconds(newest):.2f} s")
        assert len(newest()) == min(count, SHOWN)
        size = journal.runs_folder().with_name(history.INDEX).stat().st_size
        print(f"the index has {size / 2**20:.1f} MiB")
        for name, job in (("in this process", newest), ("workbench runs", command)):
            times = sorted(seconds(job) * 1000 for _ in range(REPEATS))
            median = statistics.median(times)
            print(f"{name}: median {median:.0f} ms, {times[0]:.0f} to {times[-1]:.0f} ms")


if __name__ == "__main__":
    main()
