"""Markdown as GitHub shows it: tables, and text of others that stays text."""

import re
from collections.abc import Iterable, Sequence

from .sanitize import clean

MARKUP = re.compile(r"([\\`*_{}\[\]<>|~#$&+=-])")
LINKING = re.compile(r"@|://|\bwww\.|(?<=\d)[.)](?= )", re.IGNORECASE)  # users, addresses, lists


def inert(text: str) -> str:
    """The text on one line, in which nothing is markup, a link or the mention of a user."""
    line = MARKUP.sub(r"\\\1", " ".join(clean(text).split()))
    return LINKING.sub(lambda found: f"{found.group()}<!-- -->", line)


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], rule: Sequence[str] = ()) -> str:
    """A table of texts that are inert already; `rule` aligns its columns."""
    lines = (titles, rule or ["---"] * len(titles), *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
