"""The steps of the first hour, in parts that each fit into ten minutes of a rented machine."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass

PART_S = 560.0  # a part begins no step after it: machines are often rented ten minutes at a time
TESTS = [f"tests/unit/workloads/test_{name}.py" for name in ("products", "machine", "transfer")]
TESTS += ["tests/unit/worker/test_backends.py", "tests/runs/test_scaling_ranks.py"]
MODES = ["tests/unit/workloads/test_modes.py"]  # most compile
REHEARSAL = ["--budget", "6"]  # for a run on a simulated card


@dataclass(frozen=True)
class Step:
    """One command, the most seconds that it may take, and what becomes of its output.

    "lines" of JSON, one "document", or the end of a "text" go into the file of the part.
    "recording" leaves the document in a file of its own, as it was written.
    """

    name: str
    words: tuple[str, ...]
    limit_s: float
    output: str = "document"
    simulates: bool = False  # whether a simulated card can run it, too

    def command(self, scratch: str, device: str | None = None) -> list[str]:
        """The command line; `device` is the simulated card of a rehearsal."""
        words = [f"{scratch}/trace.json" if word == "TRACE" else word for word in self.words]
        if device is not None and self.simulates:
            named = [] if "gpu" in words else ["--device", "cpu", "--device", device]
            words = [device if word == "gpu" else word for word in words] + named + REHEARSAL
        return [sys.executable, "-m", *words]


def truth(section: str, limit_s: float) -> Step:
    return Step(section, ("benchmarks.first_hour.truth", section), limit_s, "lines")


def workbench(name: str, words: str, limit_s: float, output: str = "document") -> Step:
    """A command of workbench; only a recording keeps its samples."""
    measures = not words.startswith(("detect", "doctor", "ceilings"))
    brief = ["--no-samples"] if measures and output == "document" else []
    whole = ("workbench", *shlex.split(words), *brief, "--json")
    return Step(name, whole, limit_s, output, simulates=measures)


def run(name: str, words: str, limit_s: float) -> Step:
    """A run on the GPU alone."""
    return workbench(name, f"run {words} --device gpu", limit_s)


def tests(name: str, files: Sequence[str], limit_s: float) -> Step:
    """The tests marked `cuda` in these files."""
    options = shlex.split("-q -p no:cacheprovider -o addopts= --import-mode=importlib -m cuda")
    return Step(name, ("pytest", *options, *files), limit_s, "text")


PROBE = truth("probe", 90)
PARTS: dict[int, tuple[Step, ...]] = {
    1: (
        truth("env", 60),
        truth("startup", 120),
        truth("overhead", 60),
        truth("products", 180),
        truth("memory", 60),
        truth("faults", 60),
        truth("switches", 60),
        workbench("detect", "detect", 60),
        workbench("doctor", "doctor", 90),
        tests("tests", TESTS, 200),
    ),
    2: (
        workbench("quick", "--quick", 75),
        workbench("table", "", 135, "recording"),
        workbench("table again", "", 135),
        workbench("ceilings", "ceilings --again --budget 150", 180, "recording"),
        Step("frozen", ("benchmarks.first_hour.freezing",), 90, "lines"),
    ),
    3: (
        workbench("thorough", "--thorough", 400, "recording"),
        Step("net", ("benchmarks.first_hour.serving",), 150, "lines"),
    ),
    4: (
        # At the default batch launches do limit a fast card, which would refute W2.  With more
        # blocks the queue may be full, and then their time has no figure.
        run("train_gpt", "train_gpt --batch 128 --set blocks=2 --budget 150", 180),
        run("transfer", "transfer --set direction=to_device,to_host,both --budget 30", 60),
        run("gemm", "gemm --set m=1,16,64 --precision bf16 --budget 25", 50),
        run("train_cnn", "train_cnn --set loaders=1,4,8 --precision bf16 --budget 45", 70),
        run("data_loading", "data_loading --budget 50", 75),
        run("scaling", "scaling --budget 25", 50),
        run("trace", "conv_layers --precision tf32,bf16 --trace TRACE --budget 40", 70),
    ),
    5: (
        run("all", "--all --quick --budget 240", 280),
        run(
            "largest batch",
            # Tokens, since to draw pictures that fill a large card would take the whole budget.
            "train_gpt --set tokens=1024 --set width=512 --set blocks=8 --largest-batch"
            " --precision fp32 --mode plain --budget 60",
            90,
        ),
        workbench("realtime", "advise realtime", 135),
        run("alone", "matmul --backend torch --precision bf16 --budget 20", 45),
    ),
    6: (tests("mode tests", MODES, 540),),
}
