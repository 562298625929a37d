"""The help of the program and its commands, in sections."""

from collections.abc import Collection, Iterable

import click

COMMANDS = {
    "Measure": "advise model run ab ceilings fleet",
    "Earlier runs": "open runs resume compare export",
    "This machine": "detect doctor watch",
    "Reference": "list schema config",
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
    _write(formatter, "Options", _rows(ctx, others))
    for title, names in OPTIONS.items():
        _write(formatter, title, _rows(ctx, names.split()))


def write_commands(
    program: click.Group, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    """The commands of the program in sections, then the most common options."""
    for title, names in COMMANDS.items():
        rows = [(name, program.commands[name].get_short_help_str(100)) for name in names.split()]
        _write(formatter, title, rows)
    title = "Common options (workbench advise --help shows all)"
    _write(formatter, title, _rows(ctx, COMMON.split()))


def _rows(ctx: click.Context, names: Collection[str]) -> list[tuple[str, str]]:
    options = (each for each in ctx.command.get_params(ctx) if isinstance(each, click.Option))
    rows = (each.get_help_record(ctx) for each in options if each.name in names)
    return [row for row in rows if row is not None]  # None: hidden


def _write(formatter: click.HelpFormatter, title: str, rows: Iterable[tuple[str, str]]) -> None:
    if lines := [*rows]:
        with formatter.section(title):
            formatter.write_dl(lines)
