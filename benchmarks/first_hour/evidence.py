"""Reads the files of the parts.  A missing or damaged file costs its own findings only."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .parts import PARTS
from .runner import SIMULATED, kept


class NotTried(Exception):  # the word of the report
    """Why a finding has no figure."""


class Evidence:
    """The records and documents in the folder of a first hour."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = {number: kept(folder / f"part-{number}.json") for number in PARTS}
        cards = [part["card"] for part in self.parts.values() if isinstance(part.get("card"), str)]
        self.card: str | None = max(cards, key=cards.count) if cards else None
        self._documents: dict[str, dict[str, Any]] = {}

    @property
    def rehearsed(self) -> bool:
        return (self.card or "").startswith(SIMULATED)

    def step(self, name: str) -> dict[str, Any]:
        """The record of a step; NotTried says why there is none."""
        number = next(n for n, steps in PARTS.items() if name in [step.name for step in steps])
        part = self.parts[number]
        if not part:
            raise NotTried(f"part {number} has not been run")
        if part.get("card") is None:
            raise NotTried(f"no GPU: {part.get('no_gpu')}")
        if part["card"] != self.card:
            raise NotTried(f"part {number} was run on another card, {part['card']}")
        if not isinstance(found := part.get("steps", {}).get(name), dict):
            if self.rehearsed:
                raise NotTried("needs a real card")
            raise NotTried(f"the step {name!r} of part {number} has not been run")
        return found

    def facts(self, step: str, what: str, **matching: Any) -> list[dict[str, Any]]:
        record = self.step(step)
        found = [
            fact
            for fact in record["facts"]
            if fact.get("what") == what and all(fact.get(k) == v for k, v in matching.items())
        ]
        if errors := [fact["error"] for fact in found if "error" in fact]:
            raise NotTried(f"{step}: {errors[0]}")
        if not found:
            raise NotTried(f"{step}: {ending(record)} and said nothing of {what!r}")
        return found

    def fact(self, step: str, what: str, **matching: Any) -> dict[str, Any]:
        return self.facts(step, what, **matching)[0]

    def document(self, step: str) -> dict[str, Any]:
        """The JSON document that a step printed."""
        record = self.step(step)
        if step not in self._documents:
            found = record.get("document")
            if "file" in record:
                try:
                    found = json.loads((self.folder / record["file"]).read_bytes())
                except FileNotFoundError:
                    raise NotTried(f"{record['file']} is not in the folder") from None
                except (OSError, ValueError, RecursionError):
                    raise NotTried(f"{record['file']} is damaged: {ending(record)}") from None
            if not isinstance(found, dict):
                raise NotTried(f"{step}: {ending(record)} and printed no document")
            self._documents[step] = found
        return self._documents[step]

    def cases(self, steps: str | Sequence[str], **matching: Any) -> Iterator[dict[str, Any]]:
        """The measurements of GPU candidates; `matching` is on fields of the case, or `status`."""
        for step in [steps] if isinstance(steps, str) else steps:
            for each in self.document(step)["measurements"]:
                case = each["case"] | each["case"]["params"] | each["case"]["tuning"]
                case |= {"status": each["status"], "scenario": each["scenario"]}
                on_gpu = not case["device"].startswith("cpu")
                if on_gpu and all(case.get(k) == v for k, v in matching.items()):
                    yield each

    def measured(self, step: str, **matching: Any) -> dict[str, Any]:
        """The one measurement of a GPU candidate that has a result."""
        for each in self.cases(step, **matching):
            if each["status"] == "ok":
                return each
            raise NotTried(f"{each['id']}: {(each['reason'] or {}).get('message')}")
        named = " ".join(str(value) for value in matching.values() if value is not None)
        raise NotTried(f"{step}: no GPU candidate {named}")

    def verdict(self, step: str, scenario: str) -> dict[str, Any]:
        for each in self.document(step)["verdicts"]:
            if each["scenario"] == scenario:
                return dict(each)
        raise NotTried(f"{step}: no row {scenario}")

    def ceiling(self, step: str = "ceilings") -> dict[str, Any]:
        """The ceilings of the GPU."""
        for each in (self.document(step)["ceilings"] or {}).get("devices", ()):
            if each["device"] != "cpu":
                return dict(each)
        raise NotTried(f"{step}: no ceilings of a GPU")


def ending(record: dict[str, Any]) -> str:
    if record.get("timed_out"):
        return f"it was killed after {record.get('limit_s')} s"
    return f"it ended with {record.get('code')}"


def number(value: Any) -> float:
    """A finite number; NotTried for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise NotTried(f"no number: {value!r}"[:80])
    return float(value)
