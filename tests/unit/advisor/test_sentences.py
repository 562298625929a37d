"""Every sentence of the advisor stands in one file, `golden/sentences.txt`.

`UPDATE_GOLDEN=1 pytest tests/unit/advisor/test_sentences.py` writes it again.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from verdict_gallery import CROSSOVERS, GALLERY

from workbench.advisor import break_even, crossover
from workbench.export.view.answers import cost_lines, cost_notes
from workbench.records.verdict import Verdict

GOLDEN = Path(__file__).parent / "golden" / "sentences.txt"
OWN = ("pick_unsettled", "unmeasured")  # warnings whose words are the advisor's


def sentences(verdict: Verdict) -> Iterator[str]:
    """Everything that a verdict says, a labelled line each."""
    yield f"choice: {verdict.choice} ({verdict.confidence})"
    yield from (f"reason: {text}" for text in verdict.reasons)
    own = (warning for warning in verdict.warnings if warning.code in OWN)
    yield from (f"warning: {warning.message} -> {warning.remedy}" for warning in own)
    if verdict.next_best:
        yield f"next: {verdict.next_best}"
    yield from (f"break-even: {text}" for text in break_even.sentences(verdict))
    yield from (f"{name}: {text}" for name, text in cost_lines(verdict))
    yield from (f"cost: {text}" for text in cost_notes(verdict))


def rendered() -> str:
    verdicts = {name: list(sentences(build())) for name, build in GALLERY.items()}
    found = {name: [f"crossover: {crossover.sentence(c)}"] for name, c in CROSSOVERS.items()}
    parts = ["\n".join([f"# {name}", *lines]) for name, lines in {**verdicts, **found}.items()]
    return "\n\n".join(parts) + "\n"


def test_every_sentence_is_as_it_was_approved() -> None:
    text = rendered()
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


@pytest.mark.parametrize("name", GALLERY)
def test_a_verdict_gives_one_to_three_whole_sentences(name: str) -> None:
    verdict = GALLERY[name]()
    assert 1 <= len(verdict.reasons) <= 3
    for text in [*verdict.reasons, *filter(None, [verdict.next_best])]:
        assert text.endswith(".")
        assert ".." not in text.replace("8..256", "")
        assert "  " not in text
