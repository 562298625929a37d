"""Why something is absent, failed or doubtful, and what to do about it."""

from __future__ import annotations

import msgspec


class Reason(msgspec.Struct, frozen=True, omit_defaults=False):
    """Why something is missing, was skipped or failed."""

    code: str  # stable, for scripts: "no_memory", "worker_died", "budget", ...
    message: str  # one line for people
    hint: str | None = None  # the remedy


class Warning(msgspec.Struct, frozen=True):
    """Something that weakens trust in a result, with its remedy."""

    code: str
    message: str
    remedy: str
    subject: str | None = None  # a case id, a scenario id, a GPU uuid; None for the whole run
