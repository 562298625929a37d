"""The name of a candidate in words."""

from __future__ import annotations

from ..contract import Case


def name_of(case_id: str) -> str:
    """A case id as a candidate in words: `cpu torch bf16 t2`."""
    return case_id.partition("/")[2].replace("/", " ")


def short(case: Case) -> str:
    """A candidate in words: `cpu torch bf16 t2`."""
    return case.label.replace("/", " ")
