"""The commands on kept runs: list, delete, complete, compare and export them."""

import os
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from string import ascii_uppercase
from time import time

import click
import msgspec

from .. import __version__
from ..engine.exit_codes import BEYOND, FAILED, OK
from ..export.formats import EVENTS, FILES, file_text, whole
from ..files.write import replace
from ..planning.usage import UsageError, check_apart, new_folder, target
from ..records.comparison import RunList, RunSummary
from ..records.encoding import encode
from ..text.output import put, say, terminal_width
from ..text.sanitize import shown
from ..text.units import counted
from .options import (
    anonymize_option,
    chosen_format,
    control_option,
    fail_on_option,
    flag,
    format_options,
    json_option,
    seconds,
    value,
)
from .program import command, echo_json, head

STATUS = click.Choice(("done", "failed", "cancelled", "incomplete", "running", "unreadable"))
LISTED = 20  # runs without --last


def _moment(_: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """A date, or an age such as `7d`, in seconds since 1970."""
    try:
        if (age := seconds(text or "")) is not None:
            return time() - age
        return None if text is None else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise UsageError(f"{option.opts[0]} takes 2026-11-20, or an age: 12h, 7d, 8w") from None


@command("workbench runs realtime --since 7d", "workbench runs --prune --older 90d")
@click.argument("text", required=False, metavar="[TEXT]")
@click.option("--status", type=STATUS, help="Only runs with this status.")
@value("--since WHEN", "A date, or an age such as 7d.", callback=_moment)
@value("--last N", "List N; default 20.", type=click.IntRange(1, 10**9))
@flag("--prune", "Delete runs by --older or --keep.")
@value("--older WHEN", "With --prune: delete runs from before WHEN.", callback=_moment)
@value("--keep N", "Delete all but the newest N.", type=click.IntRange(0, 10**9))
@flag("--yes", "Delete without asking.")
@json_option
def runs(
    text: str | None, status: str | None, since: float | None, last: int | None, prune: bool,
    older: float | None, keep: int | None, yes: bool, as_json: bool,
) -> None:  # fmt: skip
    """List the kept runs, newest first.

    TEXT lists runs with all of its words in their command, id, date, status, machine or answers.
    With --prune, delete the matching runs, after confirmation.  A run in progress and other files
    are kept.
    """
    from ..export.view.runs import is_found
    from ..report.history import matching, refreshed

    if prune != (keep is not None or older is not None) or (yes and not prune):
        raise UsageError("--prune needs --older or --keep; --older, --keep and --yes need --prune")
    if prune and last is not None:
        raise UsageError("--last limits the list; --keep says how many runs --prune leaves")
    last = last or LISTED
    words = shown(text or "", 1000)  # escaped like the texts of a summary
    kept = matching(refreshed(), status=status, since_s=since, before_s=older)
    found = (each for each in kept if is_found(each[1], words))
    if prune:
        idle = (each for each in found if each[1].status not in ("running", "unreadable"))
        sys.exit(_prune(list(islice(idle, keep or 0, None)), yes=yes, as_json=as_json))
    listed = [summary for _, summary in islice(found, last)]
    _show(listed, as_json=as_json)
    if not listed:
        say("no run is kept, or none matches")
    if next(found, None) is not None:
        say("there are older ones: --last N shows more")


def _show(runs: Sequence[RunSummary], *, as_json: bool) -> None:
    from ..export.view.runs import COLUMNS, run_line
    from ..export.view.spans import plain_lines
    from ..export.view.table import UNLIMITED, Column, table_lines

    if as_json:
        echo_json(RunList(**head("runs"), runs=runs))
        return
    started, *others = COLUMNS
    started = msgspec.structs.replace(started, rank=5)  # disappears early, since the id contains it
    columns, width = [Column("id", "Run"), started, *others], terminal_width() or UNLIMITED
    click.echo(plain_lines(table_lines(columns, [*map(run_line, runs)], width)))


def _prune(old: Sequence[tuple[Path, RunSummary]], *, yes: bool, as_json: bool) -> int:
    """Delete these runs if the user agrees; returns the exit code."""
    from ..report.history import delete

    _show([summary for _, summary in old], as_json=as_json)
    failed = 0
    if not old:
        say("no run matches: nothing is deleted")
    elif not (yes or sys.stdin.isatty()):
        say(f"this would delete {counted(len(old), 'run')}; --yes deletes what matches")
    elif yes or click.confirm(f"Delete {counted(len(old), 'run')}?", err=True):
        for path, summary in old:
            try:
                delete(path)
            except OSError as error:
                failed += 1
                say(f"workbench: {summary.id} is not deleted: {error.strerror}")
        say(f"deleted {counted(len(old) - failed, 'run')}")
    return FAILED if failed else OK


@command("workbench resume last --json")
@click.argument("run", metavar="ID")
@format_options()
@control_option
def resume(run: str, control: bool, **options: bool) -> None:
    """Measure the rows missing from an interrupted run.

    The result is a new run, which also contains the rows already measured.  A complete run is
    printed in the format that is asked for, and its exit code is that of the run.
    """
    from ..report import cut_run, history, journal, run_files

    if os.path.isfile(run):  # noqa: PTH113 - no error for a name that is too long
        raise UsageError("resume takes the id of a kept run, not a file; workbench runs lists them")
    old = run_files.open_run(run)
    run_id = old.report.started.id if old.report.started else run
    if history.is_being_written(journal.path_of(run_id)):
        raise UsageError(f"run {run_id} is still under way")
    cut, display = cut_run.CutRun.of(old, __version__), chosen_format(options)
    if not cut.budget_s:
        from .headless import unmeasured

        missing = unmeasured(cut.old.report)
        for row, why in missing:
            say(f"{why}; measure it: {row.plan.reproduce}")
        state = "has no row left to resume" if missing else "is complete"
        say(f"run {cut.started.id} {state}: workbench open {cut.started.id}")
        if display == EVENTS:
            put([b"\n".join(map(encode, old.events))])
        elif display is not None:
            put(whole(display, old.report))
        finished = old.report.finished
        ended = finished.exit_code if finished and finished.status == "done" else OK
        sys.exit(FAILED if missing else ended)
    chosen = [f"--{name}" for name in (display, control and "control") if name]
    root = click.get_current_context().find_root().command
    root.main([*cut.command, *chosen], standalone_mode=False, obj=cut)


@command("workbench compare before.json last --fail-on 5%")
@click.argument("runs", nargs=-1, metavar="A B [C]...")
@fail_on_option
@flag("--markdown", "Tables for a pull request.")
@json_option
def compare(runs: tuple[str, ...], fail_on: float | None, markdown: bool, as_json: bool) -> None:
    """Compare each run with the first one, case by case.

    A, B and C are anything that `open` accepts.  The runs did not take turns, so intervals are
    wide.
    """
    from ..advisor.compare import run_comparison
    from ..export.markdown import tables
    from ..export.view.comparison import sections
    from ..report.run_files import open_run

    if not 2 <= len(runs) <= len(ascii_uppercase):
        raise UsageError("name two to 26 runs: workbench compare before.json after.json")
    reports = [open_run(run).report for run in runs]
    found = run_comparison(head("compare")["tool"], reports, fail_on)
    if as_json:
        echo_json(found)
    else:
        put([tables(sections(found), as_markdown=markdown)])
    if any(case.beyond for one in found.against for case in one.cases):
        sys.exit(BEYOND)
    code = OK
    for one in found.against if fail_on is not None else ():
        reasons = [case.reason for case in one.cases if case.reason is not None]
        if len(reasons) == len(one.cases):
            why, code = max(reasons, key=reasons.count), FAILED
            say(f"workbench: --fail-on judged no case of {one.name}: {why.message}; {why.hint}")
        if one.failed_here:
            (case, why), *_ = one.failed_here.items()
            count, code = counted(len(one.failed_here), "case"), FAILED
            text = f"{count} failed in {one.name}, such as {case}: {why.one_line}"
            say(f"workbench: --fail-on does not pass: {text}")
    sys.exit(code)


@command("workbench export last --html run.html --svg plots")
@click.argument("run", metavar="RUN")
@value("--svg DIR", "Every plot, in a new folder.")
@anonymize_option
def export(run: str, svg: str | None, anonymize: bool, **files: str | None) -> None:
    """Write an earlier run as files.

    RUN is anything that `open` accepts.  Without FILE, the output goes to stdout.
    """
    from ..export.sections import sections
    from ..export.view.svg import svg_file
    from ..report.anonymous import anonymised
    from ..report.run_files import open_run

    named = {form: to for form, to in files.items() if to is not None}
    if not (named or svg) or [*named.values()].count("-") > 1:
        raise UsageError(f"choose from --svg DIR, --{', --'.join(FILES)}; one may go without FILE")
    folder = new_folder("--svg", Path(svg)) if svg is not None else None
    targets = {
        form: None if to == "-" else target(f"--{form}", Path(to), opened=True)
        for form, to in named.items()
    }
    outputs = {"--svg": svg, **{f"--{form}": to for form, to in named.items() if to != "-"}}
    check_apart(outputs, {"RUN": run} if os.path.isfile(run) else {})  # noqa: PTH113 - as above
    report = open_run(run).report
    if not report.has_results:
        raise UsageError(f"{run} has no measurements: choose another run (workbench open {run})")
    report = anonymised(report) if anonymize else report
    for form, output in targets.items():
        content = file_text(form, report).encode()
        if output is None:
            put([content])
        else:
            output.write(content + b"\n")
    if folder is not None:
        plots = [plot for section in sections(report) for plot in section.plots]
        folder.mkdir()
        try:
            for number, plot in enumerate(plots, 1):
                replace(folder / f"plot-{number:02}.svg", svg_file(plot).encode())
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


for name, text in FILES.items():
    option = click.option(f"--{name}", metavar="[FILE]", is_flag=False, flag_value="-", help=text)
    option(export)
