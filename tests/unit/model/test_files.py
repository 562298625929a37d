"""The files and options with which a variant of a user's model runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lab_bench import Bench


@pytest.mark.parametrize(
    ("mode", "keeps"), [(None, False), ("no-spin", False), ("bf16", True), ("tf32", True)]
)
def test_the_model_as_given_keeps_the_limit_only_where_it_is_rounded(mode, keeps) -> None:
    bench = Bench()
    bench.open_row()
    files = bench.run.variants.files(replace(bench.cases[0], mode=mode))
    assert ("limit" in files) is keeps
