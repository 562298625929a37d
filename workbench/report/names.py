"""Names of candidates."""

from __future__ import annotations

from ..contract import Case


def candidate_name(case: Case | str) -> str:
    """`cpu torch bf16 t2` for a case or a case id."""
    label = case.partition("/")[2] if isinstance(case, str) else case.label
    return label.replace("/", " ")
