"""The program and its commands: how they are found, parse arguments and show help."""

import builtins
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from .. import __version__
from ..planning.usage import UsageError
from .completion import completed

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


class Command(click.Command):
    """A command that refuses empty values, as from an unset shell variable, and NaN, which passes
    every comparison with a limit."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return completed(super().get_params(ctx))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sectioned = {name for names in OPTIONS.values() for name in names.split()}
        others = {str(each.name) for each in self.get_params(ctx)} - sectioned
        _write(formatter, "Options", self._rows(ctx, others))
        for title, names in OPTIONS.items():
            _write(formatter, title, self._rows(ctx, names.split()))

    def _rows(self, ctx: click.Context, names: Collection[str]) -> list[tuple[str, str]]:
        options = (each for each in self.get_params(ctx) if isinstance(each, click.Option))
        rows = (each.get_help_record(ctx) for each in options if each.name in names)
        return [row for row in rows if row is not None]  # None: hidden

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, self._with_arguments(args))
        for parameter in () if ctx.resilient_parsing else self.params:  # not during completion
            value = ctx.params.get(parameter.name or "")
            for each in value if isinstance(value, tuple) else [value]:
                check_value(parameter, each)
        return rest

    def _with_arguments(self, args: list[str]) -> list[str]:
        """Pass the arguments after `--` as values of the hidden option, if this command has it."""
        if "--" not in args or all(parameter.name != "arguments" for parameter in self.params):
            return args
        place = args.index("--")
        return [*args[:place], *(f"--argument={text}" for text in args[place + 1 :])]


class ReaderGone(Exception):
    """The reader of stdout has closed its pipe; click would exit with 1 on a BrokenPipeError."""


class Group(Command, click.Group):
    """The same for the options before the name of a command."""

    command_class = Command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        summaries = {n: each.get_short_help_str(100) for n, each in self.commands.items()}
        _write(formatter, "Commands", sorted(summaries.items()))
        super().format_options(ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if not (ctx.resilient_parsing or args[0].startswith("-") or args[0] in known):
            from ..planning.scenarios import check_name

            check_name("command", args[0], [*known, "--help"])
        return super().resolve_command(ctx, args)

    def _with_arguments(self, args: list[str]) -> list[str]:
        is_command = not {*self.list_commands(click.Context(self))}.isdisjoint(args[:1])
        return args if is_command else super()._with_arguments(args)

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        with _a_reader():
            return super().make_context(*arguments, **options)

    def invoke(self, context: click.Context) -> Any:
        with _a_reader():
            return super().invoke(context)


class Program(Group):
    """The program itself, which imports a command only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            place, _ = COMMANDS[cmd_name]
            module = import_module(f".{place}", __package__)
            name = f"{cmd_name}_" if hasattr(builtins, cmd_name) else cmd_name
            self.add_command(getattr(module, name))
        return super().get_command(ctx, cmd_name)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands in sections, then the most common options."""
        for title, commands in SECTIONS.items():
            _write(formatter, title, [(name, summary) for name, (_, summary) in commands.items()])
        title = "Common options (workbench advise --help shows all)"
        _write(formatter, title, self._rows(ctx, COMMON.split()))


def _write(formatter: click.HelpFormatter, title: str, rows: Iterable[tuple[str, str]]) -> None:
    """A section of the help, unless it is empty."""
    if lines := [*rows]:
        with formatter.section(title):
            formatter.write_dl(lines)


@contextmanager
def _a_reader() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderGone from error


def check_value(parameter: click.Parameter, value: object) -> None:
    """Raise UsageError for an empty text, also one of commas alone, and for NaN and infinity."""
    if parameter.type is click.UNPROCESSED:
        return
    name = str(parameter.metavar).translate({ord("["): None, ord("]"): None}).removesuffix("...")
    if isinstance(parameter, click.Option):
        name = parameter.opts[0]
    if isinstance(value, str) and not value.strip(" ,"):
        rest = "" if parameter.required else ", or leave it out"
        raise UsageError(f"{name} is empty: name a value{rest}")
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{name} must be a finite number, not {value}")


def command(*lines: str, name: str | None = None, **settings: Any) -> Callable[..., Command]:
    """A decorator for a command with these examples."""
    return click.command(name, cls=Command, epilog=examples(*lines), **settings)


def examples(*lines: str) -> str:
    """An epilogue that click leaves unwrapped."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def head(command: str) -> dict[str, Any]:
    """The first members of every document other than that of a run."""
    from ..records.document import SCHEMA_VERSION, Tool

    return {"schema_version": SCHEMA_VERSION, "tool": Tool("workbench", __version__, command)}


def echo_json(value: Any) -> None:
    from ..export.json import dump

    click.echo(dump(value).encode())  # UTF-8 (RFC 8259) in any locale
