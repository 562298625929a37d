"""Times how long each installed library takes to be ready in a new worker on the CPU.

`make start-up` writes the table of docs/accuracy.md.  A worker imports its library and starts
it; the first process after a boot also reads it from the disk, and does not count.
"""

import subprocess
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # not this folder, where `workloads` would be a benchmark

from workbench import catalog  # noqa: E402
from workbench.text import units  # noqa: E402

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
    lines = ["| library | median | least-most |", "|---|---|---|"]
    for name in sorted(catalog.backends()):
        if name in ("python", "command") or started(name) is None:
            continue
        found = [each for _ in range(PROCESSES) if (each := started(name))]
        seconds = sorted(each[0] for each in found)
        ends = f"{units.duration(seconds[0])}-{units.duration(seconds[-1])}"
        line = f"| {name} {found[0][1]} | {units.duration(median(seconds))} | {ends} |"
        print(line, file=sys.stderr, flush=True)
        lines.append(line)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text("\n".join([before + BEGIN, *lines, END + rest.partition(END)[2]]))


if __name__ == "__main__":
    main()
