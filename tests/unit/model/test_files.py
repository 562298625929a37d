"""The files and options with which a variant of a user's model runs."""

from dataclasses import replace
from pathlib import Path

import pytest
from lab_bench import Bench


@pytest.mark.parametrize(
    ("mode", "keeps"), [(None, False), ("no-spin", False), ("bf16", True), ("tf32", True)]
)
def test_the_model_as_given_keeps_the_limit_only_where_it_is_rounded(mode, keeps) -> None:
    bench = Bench()
    bench.open_row()
    files = bench.lab.variants.files(replace(bench.cases[0], mode=mode))
    assert ("limit" in files) is keeps


def test_a_quick_run_that_a_slow_gpu_lengthened_has_its_reserved_time_to_save() -> None:
    bench = Bench({"save": {"size_bytes": 300, "difference": 0.0}}, quick=True)
    bench.open_row()
    bench.child.longest_gpu_start_s = 12.0
    bench.clock.at_s = bench.lab.context.end_s - bench.lab.reserved_s
    assert bench.clock.at_s > bench.lab.context.request.budget
    bench.lab.variants.save(bench.cases[0], Path("best.onnx"))
    assert bench.child.deadlines[-1] >= bench.lab.reserved_s
