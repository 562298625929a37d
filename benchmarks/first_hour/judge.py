"""From the files of a first hour to a word for each finding."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from workbench.text.sanitize import shown

from . import of_card, of_workbench
from .evidence import Evidence, NotTried
from .findings import Finding
from .runner import SIMULATED

FINDINGS = (*of_workbench.finding, *of_card.finding)
CONFIRMED, REFUTED, NOT_TRIED = "confirmed", "refuted", "not tried"
ALL_HELD, SOME_REFUTED, NOTHING_TRIED = 0, 1, 3  # exit codes; 2 is a wrong use
UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
LONGEST = 200  # characters of a reason or a word


@dataclass(frozen=True)
class Judged:
    """The outcome of a finding; `figure` may be there although the finding was not tried."""

    id: str
    what: str
    expected: str
    source: str
    word: str
    figure: float | str | None = None
    reason: str | None = None

    @property
    def answer(self) -> str:
        """ "confirmed: 789 TFLOP/s", or "not tried: " with the reason."""
        if self.word == NOT_TRIED:
            return f"{self.word}: {self.reason}"
        return f"{self.word}: {written(self.figure)}"


def written(figure: float | str | None) -> str:
    return f"{figure:.4g}" if isinstance(figure, float | int) else str(figure)


def judge(seen: Evidence, findings: Sequence[Finding] = FINDINGS) -> list[Judged]:
    return [judged(finding, seen) for finding in findings]


def judged(finding: Finding, seen: Evidence) -> Judged:
    expected = finding.expectation(seen.card or "")
    named = {
        "id": finding.id,
        "what": finding.what,
        "expected": str(expected) if expected else finding.expected_of_all,
        "source": finding.source,
    }
    blind = [part["no_gpu"] for part in seen.parts.values() if part.get("no_gpu")]
    if seen.card is None and blind:
        return Judged(**named, word=NOT_TRIED, reason="no GPU")
    try:
        figure = finding.read(seen)
        figure = shown(figure)[:LONGEST] if isinstance(figure, str) else float(figure)
        holds = expected is not None and expected.holds(figure)
    except NotTried as why:
        return Judged(**named, word=NOT_TRIED, reason=shown(str(why))[:LONGEST])
    except UNREADABLE as error:
        why = f"its figure cannot be read ({type(error).__name__}: {error})"
        return Judged(**named, word=NOT_TRIED, reason=shown(why)[:LONGEST])
    if seen.rehearsed:
        reason = f"a rehearsal on {str(seen.card).removeprefix(SIMULATED)}"
        return Judged(**named, word=NOT_TRIED, figure=figure, reason=shown(reason))
    if expected is None:
        reason = "no expectation for this card"
        return Judged(**named, word=NOT_TRIED, figure=figure, reason=reason)
    return Judged(**named, word=CONFIRMED if holds else REFUTED, figure=figure)


def exit_code(found: Sequence[Judged]) -> int:
    words = Counter(each.word for each in found)
    if words[REFUTED]:
        return SOME_REFUTED
    return ALL_HELD if words[CONFIRMED] else NOTHING_TRIED


def report(seen: Evidence, found: Sequence[Judged]) -> dict[str, Any]:
    """The report as JSON: the card, each finding, and the commands behind them."""
    commands = [
        {"part": number, "step": name}
        | {key: step.get(key) for key in ("command", "code", "timed_out", "wall_s")}
        for number, part in seen.parts.items()
        for name, step in part.get("steps", {}).items()
    ]
    return {
        "first_hour": 1,
        "card": seen.card,
        "at": max((str(part.get("at")) for part in seen.parts.values() if part), default=None),
        "software": software(seen),
        "counts": {w: sum(f.word == w for f in found) for w in (CONFIRMED, REFUTED, NOT_TRIED)},
        "findings": [asdict(each) for each in found],
        "commands": commands,
    }


def software(seen: Evidence) -> dict[str, Any]:
    """Versions, as far as the files say them."""
    versions: dict[str, Any] = {}
    try:
        torch = seen.fact("env", "torch")
        versions |= {"torch": torch["version"], "cuda": torch["cuda"]}
        detected = seen.document("detect")
        versions["python"] = detected["software"]["python"]
        versions["driver"] = detected["machine"]["gpus"][0]["driver_version"]
    except (NotTried, *UNREADABLE):
        pass
    return versions
