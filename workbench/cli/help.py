"""The help of the program and its commands, in sections."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

import click


class Entry(NamedTuple):
    """A command in the help of the program, which imports none."""

    section: str
    module: str  # in this folder
    summary: str  # the first sentence of its own help


_MEASURE, _RUNS, _MACHINE = "Measure", "Earlier runs", "This machine"
_REFERENCE = "Reference"
COMMANDS = {
    "advise": Entry(_MEASURE, "measure", "Recommend CPU or GPU for each scenario."),
    "model": Entry(
        _MEASURE, "measure", "Recommend which variant of your own ONNX model to ship, and where."
    ),
    "run": Entry(_MEASURE, "measure", "Measure every way of running a workload, side by side."),
    "ab": Entry(
        _MEASURE, "ab", "Compare two sides of one job in turns: SAME, FASTER, SLOWER or AMBIGUOUS."
    ),
    "ceilings": Entry(_MEASURE, "commands", "Show the ceilings of this machine."),
    "fleet": Entry(
        _MEASURE, "fleet", "Ask many machines the same question, and choose among them."
    ),
    "open": Entry(_RUNS, "commands", "Show an earlier run."),
    "runs": Entry(_RUNS, "history", "List the kept runs, newest first."),
    "resume": Entry(_RUNS, "history", "Measure the rows missing from an interrupted run."),
    "compare": Entry(_RUNS, "history", "Compare each run with the first one, case by case."),
    "export": Entry(_RUNS, "history", "Write an earlier run as files."),
    "detect": Entry(_MACHINE, "commands", "Show the hardware and software that a run would use."),
    "doctor": Entry(_MACHINE, "commands", "Check hardware, driver and packages."),
    "watch": Entry(_MACHINE, "commands", "Watch processor and GPUs."),
    "list": Entry(
        _REFERENCE, "commands", "Show the scenarios and workloads, and what each teaches."
    ),
    "schema": Entry(_REFERENCE, "commands", "Print the JSON Schema of what a command prints."),
    "config": Entry(
        _REFERENCE, "commands", "Show the remembered choices and their file, or change one."
    ),
}
OPTIONS = {  # by the names of the parameters; the others come first
    "Candidates": "devices backends precisions modes threads batch settings python seed",
    "Your own model or code": (
        "model torch function command over until train pickled inputs shapes objective max_error"
        " min_agreement save_best"
    ),
    "Output": (
        "as_json as_jsonl as_plain no_samples anonymize output trace strict strict_samples verbose"
    ),
}
COMMON = "quick budget_s devices model torch as_json version _click_default_help"


def write_options(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """The options of a command in sections."""
    sectioned = {name for names in OPTIONS.values() for name in names.split()}
    others = {str(each.name) for each in ctx.command.get_params(ctx)} - sectioned
    write_section(formatter, "Options", _rows(ctx, others))
    for title, names in OPTIONS.items():
        write_section(formatter, title, _rows(ctx, names.split()))


def write_commands(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """The commands of the program in sections, then the most common options."""
    for title in dict.fromkeys(entry.section for entry in COMMANDS.values()):
        rows = [(name, e.summary) for name, e in COMMANDS.items() if e.section == title]
        write_section(formatter, title, rows)
    title = "Common options (workbench advise --help shows all)"
    write_section(formatter, title, _rows(ctx, COMMON.split()))


def _rows(ctx: click.Context, names: Collection[str]) -> list[tuple[str, str]]:
    options = (each for each in ctx.command.get_params(ctx) if isinstance(each, click.Option))
    rows = (each.get_help_record(ctx) for each in options if each.name in names)
    return [row for row in rows if row is not None]  # None: hidden


def write_section(
    formatter: click.HelpFormatter, title: str, rows: Iterable[tuple[str, str]]
) -> None:
    if lines := [*rows]:
        with formatter.section(title):
            formatter.write_dl(lines)
