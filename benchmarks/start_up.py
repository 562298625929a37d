"""Times how long each installed library takes to be ready in a new worker on the CPU.

`make start-up` writes the table of docs/accuracy.md.  A worker imports its library and starts
it; the first process after a boot also reads it from the disk, and does not count.
"""

import subprocess
import sys
from statistics import median

from benchmarks.shared import ROOT, table, write_block
from workbench import catalog
from workbench.text import units

PAGE = ROOT / "docs" / "accuracy.md"
BEGIN, END = "<!-- written by make start-up -->", "<!-- end of it -->"
PROCESSES = 7
START = """
import sys, time
began = time.perf_counter()
from workbench.worker.worker import Worker
found = Worker(sys.argv[1], "cpu").hello()["versions"]
print(time.perf_counter() - began, found[sys.argv[1]])
"""


def started(name: str) -> tuple[float, str] | None:
    """Seconds until a worker is ready, and the library's version; None where it is missing."""
    command = [sys.executable, "-c", START, name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        return None
    seconds, version = done.stdout.split()[-2:]
    return float(seconds), version


def main() -> None:
    lines = []
    for name in sorted(catalog.backends()):
        if name in ("python", "command") or started(name) is None:
            continue
        found = [each for _ in range(PROCESSES) if (each := started(name))]
        seconds = sorted(each[0] for each in found)
        ends = f"{units.duration(seconds[0])}-{units.duration(seconds[-1])}"
        lines.append((f"{name} {found[0][1]}", units.duration(median(seconds)), ends))
        print(*lines[-1], file=sys.stderr, flush=True)
    write_block(PAGE, BEGIN, END, table(("library", "median", "least-most"), lines))


if __name__ == "__main__":
    main()
