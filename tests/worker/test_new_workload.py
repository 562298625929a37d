"""Adding a workload is one new file."""

import re
from pathlib import Path

from support import budget, printed

COUNTING = '''
"""Counting: a complete workload."""

from workbench.contract import Accuracy, Case, Parameter, Setup, Task, Variant, Work, Workload


class CountTask(Task):
    def __init__(self, to: int) -> None:
        self.to, self.total = to, 0

    def step(self) -> None:
        self.total = sum(range(self.to))

    def check(self) -> Accuracy:
        self.step()
        error = abs(self.total - self.to * (self.to - 1) / 2)
        return Accuracy.within(error, 0.0, "Gauss")


class Counting(Workload):
    name = "counting"
    title = "Counting"
    teaches = "Adding up small numbers in Python takes time."
    parameters = (Parameter("to", 1000, "end of the range", 1, 1e9),)
    variants = (Variant("cpu", "numpy", "fp64"),)

    def work(self, case: Case) -> Work:
        return Work(None, None, float(case.params["to"]), "numbers", 1e6)

    def prepare(self, case: Case, setup: Setup) -> Task:
        return CountTask(int(case.params["to"]))


WORKLOAD = Counting()
'''


def test_a_file_in_a_folder_is_listed_and_run(cli, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "counting.py").write_text(COUNTING)
    listed = cli("list", WORKBENCH_WORKLOADS=str(folder))
    assert re.search(r"^counting +Adding up", listed.stdout, re.MULTILINE)
    done = cli("run", "counting", "--set", "to=5000", *budget(3), "--json",
               WORKBENCH_WORKLOADS=str(folder))  # fmt: skip
    (measured,) = printed(done)["measurements"]
    assert measured["id"] == "counting[to=5000]/cpu/numpy/fp64/t" + str(measured["case"]["threads"])
    assert measured["throughput"]["unit"] == "numbers/s"
    assert measured["iterations_per_sample"] > 1
    assert measured["accuracy"]["value"] == 0
