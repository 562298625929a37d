"""Time of detection over the time of its imports alone.

`python benchmarks/detection.py`; the second figure needs a C compiler, for the stub driver.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "nvml_stub"))
from stub_driver import build

ROOT = Path(__file__).resolve().parent.parent
DETECT = [sys.executable, "-m", "workbench", "detect", "--json"]
MODULES = """
import sys
from workbench.cli.main import cli
cli.main(["detect", "--json"], standalone_mode=False)
names = {n for n in sys.modules if n.partition(".")[0] not in ("workbench", "__main__")}
print(" ".join(sorted(names)), file=sys.stderr)
"""
PASS = """
import time
from workbench.machine.nvidia.nvml import survey
began = time.perf_counter()
rows = list(survey())
print(len(rows) - 1, time.perf_counter() - began)
"""


def seconds(argv: list[str]) -> float:
    # As after the first start: our modules compiled, as those of the libraries are.
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    subprocess.run(argv, cwd=ROOT, env=environ, check=True, capture_output=True)
    return time.perf_counter() - began


def detect_ratio(runs: int = 15) -> tuple[float, float]:
    """(seconds of detect, its ratio to importing the same modules), in turns."""
    told = subprocess.run([sys.executable, "-c", MODULES], cwd=ROOT, capture_output=True, text=True)
    names = [name for name in told.stderr.split() if name.isidentifier() or "." in name]
    loop = f"import importlib\nfor name in {names!r}:\n    importlib.import_module(name)"
    imports = [sys.executable, "-c", loop]
    pairs = [(seconds(DETECT), seconds(imports)) for _ in range(runs)]
    return median(d for d, _ in pairs), median(d / i for d, i in pairs)


def nvml_pass(gpus: int = 8, runs: int = 15) -> float:
    """Seconds of one pass over so many GPUs on the stub driver, NVML's start included."""
    with tempfile.TemporaryDirectory() as folder:
        stub = build(Path(folder) / "stub")
        environ = stub.environ("nvml", NVML_STUB_GPUS=str(gpus))
        found = []
        for _ in range(runs):
            argv = [sys.executable, "-c", PASS]
            done = subprocess.run(
                argv, cwd=ROOT, env=environ, check=True, capture_output=True, text=True
            )
            count, took_s = done.stdout.split()
            assert int(count) == gpus
            found.append(float(took_s))
    return median(found)


def main() -> None:
    took_s, ratio = detect_ratio()
    print(f"detect --json: {took_s * 1e3:.0f} ms, {ratio:.2f} of its imports alone (goal 1.5)")
    print(f"one NVML pass over 8 GPUs: {nvml_pass() * 1e3:.1f} ms (goal 50)")


if __name__ == "__main__":
    main()
