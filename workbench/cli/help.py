"""The help of the program and its commands, in sections."""

from collections.abc import Collection, Iterable

import click

# Commands by section: a module of this folder, and the first sentence of the command's own help,
# repeated so that the program's help imports no command.
SECTIONS = {
    "Measure": {
        "advise": ("measure", "Recommend CPU or GPU for each scenario."),
        "model": ("measure", "Recommend which variant of your own ONNX model to ship, and where."),
        "run": ("measure", "Measure every way of running a workload, side by side."),
        "ab": ("ab", "Compare two sides of one job in turns: SAME, FASTER, SLOWER or AMBIGUOUS."),
        "ceilings": ("commands", "Show the ceilings of this machine."),
        "fleet": ("fleet", "Ask many machines the same question, and choose among them."),
    },
    "Earlier runs": {
        "open": ("commands", "Show an earlier run."),
        "runs": ("history", "List the kept runs, newest first."),
        "resume": ("history", "Measure the rows missing from an interrupted run."),
        "compare": ("history", "Compare each run with the first one, case by case."),
        "export": ("history", "Write an earlier run as files."),
    },
    "This machine": {
        "detect": ("commands", "Show the hardware and software that a run would use."),
        "doctor": ("commands", "Check hardware, driver and packages."),
        "watch": ("commands", "Watch processor and GPUs."),
    },
    "Reference": {
        "list": ("commands", "Show the scenarios and workloads, and what each teaches."),
        "schema": ("commands", "Print the JSON Schema of a command's output."),
        "config": ("commands", "Show your settings and their file, or change one."),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
OPTIONS = {  # by the names of the parameters; other options come first
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
    for title, commands in SECTIONS.items():
        rows = [(name, summary) for name, (_, summary) in commands.items()]
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
