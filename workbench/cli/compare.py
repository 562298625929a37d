"""`workbench compare`: earlier runs side by side."""

from __future__ import annotations

import re
import sys
from string import ascii_uppercase

import click

from ..planning.usage import UsageError
from .options import Command, examples, json_option


def share(_: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """`5%` as 0.05."""
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{0,4}\.?[0-9]{1,4}%", text) or not float(text[:-1]):
        wanted = f"{option.opts[0]} takes a percentage such as {option.metavar}"
        raise UsageError(f"{wanted}, not {text!r}")
    return float(text[:-1]) / 100


@click.command(cls=Command, epilog=examples("workbench compare before.json last --fail-on 5%"))
@click.argument("runs", nargs=-1, metavar="A B [C]...")
@click.option("--fail-on", callback=share, metavar="5%", help="Exit 4 if slower by more.")
@click.option("--markdown", is_flag=True, help="Tables for a pull request.")
@json_option
def compare(runs: tuple[str, ...], fail_on: float | None, markdown: bool, as_json: bool) -> None:
    """Compare earlier runs with the first of them, case by case.

    A, B and C are whatever `open` takes.  The runs did not take turns, so intervals are wide.
    """
    from ..advisor.compare import Side, compared
    from ..engine.exit_codes import BEYOND, OK
    from ..export.view.comparison import comparison_markdown, comparison_text
    from ..records.comparison import RunComparison
    from ..report.run_files import open_run
    from ..text.output import put, terminal_width
    from .commands import echo_json, head

    if not 2 <= len(runs) <= len(ascii_uppercase):
        raise UsageError("name two runs or more: workbench compare before.json after.json")
    first, *others = (Side(ascii_uppercase[n], open_run(run).report) for n, run in enumerate(runs))
    for other in others:
        if first.run.run.id == other.run.run.id:
            raise UsageError(f"A and {other.name} are the same run, {first.run.run.id}: name two")
        if first.cases.keys().isdisjoint(other.cases):
            hint = "compare runs of the same workloads and sizes"
            raise UsageError(f"A and {other.name} have no measured case in common: {hint}")
    against = [compared(first, other, fail_on) for other in others]
    sides = [side.run for side in (first, *others)]
    found = RunComparison(**head("compare"), fail_on=fail_on, runs=sides, against=against)
    if as_json:
        echo_json(found)
    else:
        put([comparison_markdown(found) if markdown else comparison_text(found, terminal_width())])
    sys.exit(BEYOND if any(case.beyond for one in against for case in one.cases) else OK)
