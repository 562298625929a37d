"""The parts of the campaign, and their shares of its time."""

from dataclasses import replace

from . import (
    command_lines,
    documents,
    environment,
    interpreters,
    kills,
    models,
    signals,
    targets,
    terminals,
    toml_files,
    user_workloads,
)
from .case import Case, Part

# Shares are minutes of a campaign of 30.  `least` holds from there on, even if it takes longer.
PARTS = (
    Part("targets", 1.5, targets.case_of),
    Part("environment", 3.0, environment.case_of),
    Part("user_workloads", 1.5, user_workloads.case_of),
    Part("interpreters", 2.0, interpreters.case_of),
    Part("toml_files", 1.5, toml_files.case_of),
    Part("command_lines", 2.0, command_lines.case_of),
    Part("documents", 7.0, documents.case_of, least=50_000),
    Part("models", 1.5, models.case_of, least=10_000),
    Part("terminals", 3.0, terminals.case_of),
    Part("signals", 3.5, signals.case_of, lanes=1),
    Part("kills", 3.5, kills.case_of),
)
FULL_MINUTES = 30.0
SHORT_MINUTES = 0.5


def _cross_section(number: int, seed: int) -> Case | None:
    """The first cases of all parts, then their second cases."""
    part = PARTS[number % len(PARTS)]
    found = part.case_of(number // len(PARTS), seed)
    return found and replace(found, name=f"{part.name}: {found.name}")


SHORT = Part("short", 1.0, _cross_section)
