"""The files and options with which a variant of a user's model runs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from lab_builders import case

from workbench.engine.model_builder import VariantBuilder


@pytest.mark.parametrize(
    ("mode", "keeps"), [(None, False), ("no-spin", False), ("bf16", True), ("tf32", True)]
)
def test_the_model_as_given_keeps_the_limit_only_where_it_is_rounded(mode, keeps) -> None:
    child: Any = SimpleNamespace(file="a.onnx", folder="lab", metric="relative_error", limit=0.02)
    facts: Any = SimpleNamespace(precision="fp32")
    never: Any = None
    builder = VariantBuilder(child, facts, {}, control=never, emit=never)
    assert ("limit" in builder.files(replace(case(), mode=mode))) is keeps
