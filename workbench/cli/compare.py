"""`workbench compare`: earlier runs side by side."""

import re
import sys
from string import ascii_uppercase

import click

from ..planning.usage import UsageError
from .options import json_option
from .program import command


def _share(_: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """`2%` as 0.02."""
    if text is not None and not re.fullmatch(r"(?=.*[1-9])[0-9]{0,4}(\.[0-9]{1,4})?%", text):
        raise UsageError(f"{option.opts[0]} takes a percentage such as 2%, not {text!r}")
    return None if text is None else float(text[:-1]) / 100


fail_on_option = click.option(
    "--fail-on",
    callback=_share,
    metavar="2%",
    help="Exit 4 if a later run, or side B, is slower by more.",
)


@command("workbench compare before.json last --fail-on 5%")
@click.argument("runs", nargs=-1, metavar="A B [C]...")
@fail_on_option
@click.option("--markdown", is_flag=True, help="Tables for a pull request.")
@json_option
def compare(runs: tuple[str, ...], fail_on: float | None, markdown: bool, as_json: bool) -> None:
    """Compare each run with the first one, case by case.

    A, B and C are anything that `open` accepts.  The runs did not take turns, so intervals are
    wide.
    """
    from ..advisor.compare import run_comparison
    from ..engine.exit_codes import BEYOND, OK
    from ..export.markdown import tables
    from ..export.view.comparison import sections
    from ..report.run_files import open_run
    from ..text.output import put
    from .commands import echo_json, head

    if not 2 <= len(runs) <= len(ascii_uppercase):
        raise UsageError("name two to 26 runs: workbench compare before.json after.json")
    reports = [open_run(run).report for run in runs]
    found = run_comparison(head("compare")["tool"], reports, fail_on)
    if as_json:
        echo_json(found)
    else:
        put([tables(sections(found), as_markdown=markdown)])
    sys.exit(BEYOND if any(case.beyond for one in found.against for case in one.cases) else OK)
