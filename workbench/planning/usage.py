"""The error for a request that cannot be met, and upper limits for options."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST_THREADS = 4096
MOST_BATCH = 1_000_000


class UsageError(Exception):
    """The request cannot be met; the message is one line that names the valid choices."""


def unknown(noun: str, given: str, choices: Iterable[str]) -> UsageError:
    """`unknown workload 'matmull'; did you mean matmul? Choices: ...`."""
    listed = list(choices)
    close = difflib.get_close_matches(given, listed, n=1)
    hint = f"; did you mean {close[0]}?" if close else "."
    return UsageError(f"unknown {noun} {given!r}{hint} Choices: {', '.join(listed)}")
