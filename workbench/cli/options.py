"""The options that commands share."""

import re
from collections.abc import Callable, Collection
from copy import copy
from typing import Any, TypeVar

import click

from .. import catalog
from ..export.formats import DOCUMENT, EVENTS, FORMATS, PLAIN
from ..planning.number_lists import whole_numbers, words
from ..planning.usage import UsageError
from ..precisions import PRECISIONS
from ..stats.objectives import OF_CODE, OF_MODELS
from .program import check_value

F = TypeVar("F", bound=Callable[..., Any])
SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


def _numbers(_: click.Context, option: click.Parameter, text: str | None) -> tuple[int, ...]:
    """One or several whole numbers: `8`, `1,8,64`, `1..256`."""
    return () if text is None else whole_numbers(option.opts[0], text)


def _format_option(name: str) -> Callable[[F], F]:
    return flag(f"--{name}", FORMATS[name], f"as_{name}")


def seconds(text: str) -> float | None:
    """`90s`, `1.5m`, `2h`, `7d` or `8w` in seconds; None for any other text."""
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(s|m|min|h|d|w)", text)
    return float(found[1]) * SECONDS[found[2]] if found else None


class Seconds(click.FloatRange):
    """A number of seconds, with or without a unit: `30`, `30s`, `2m`."""

    name = "time in seconds such as 30, or 2m"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = seconds(value) if isinstance(value, str) else None
        return super().convert(value if found is None else found, param, ctx)


def _share(_: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """`2%` as 0.02."""
    if text is not None and not re.fullmatch(r"(?=.*[1-9])[0-9]{0,4}(\.[0-9]{1,4})?%", text):
        raise UsageError(f"{option.opts[0]} takes a percentage such as 2%, not {text!r}")
    return None if text is None else float(text[:-1]) / 100


def _words(_: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Several names: `cpu,gpu`, or the option several times."""
    for text in texts:
        check_value(option, text)
    return words(texts)


def flag(name: str, text: str, field: str | None = None, **more: Any) -> Callable[[F], F]:
    """An option without a value, for the parameter `field`."""
    return click.option(*filter(None, (name, field)), is_flag=True, help=text, **more)


def value(shown: str, text: str, field: str | None = None, **more: Any) -> Callable[[F], F]:
    """An option with a value, `shown` as `--name VALUE`, for the parameter `field`."""
    name, metavar = shown.split()
    return click.option(*filter(None, (name, field)), metavar=metavar, help=text, **more)


def _repeatable(shown: str, text: str, field: str, **more: Any) -> Callable[[F], F]:
    return value(shown, f"{text}  Repeatable.", field, multiple=True, **more)


def names_option(shown: str, text: str, field: str) -> Callable[[F], F]:
    return _repeatable(shown, text, field, callback=_words)


def all_of(*options: Callable[[F], F]) -> Callable[[F], F]:
    """A decorator that gives a command these options, in this order."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def adapt(command: click.Command, without: Collection[str] = (), **texts: str) -> None:
    """Remove the options that the command does not take, and reword the help of others."""
    command.params = [copy(each) for each in command.params if each.name not in without]
    for option in command.params:
        if isinstance(option, click.Option):
            option.help = texts.get(option.name or "", option.help)


def format_options(*, whole: bool = False) -> Callable[[F], F]:
    """An option for each export format, or for each that takes a `whole` run."""
    return all_of(*(_format_option(name) for name in FORMATS if not (whole and name == EVENTS)))


def chosen_format(options: dict[str, Any]) -> str | None:
    """Remove the format options from `options` and return the chosen one, or None.

    If --plain is combined with another format, the other one counts.
    """
    chosen = [name for name in FORMATS if options.pop(f"as_{name}", False)]
    others = [name for name in chosen if name != PLAIN]
    if len(others) > 1:
        raise UsageError(f"--{others[0]} and --{others[1]} exclude each other")
    return next(iter(others or chosen), None)


def keeps_samples(
    options: dict[str, Any], export_as: str | None, output: str | None = None
) -> bool:
    """Remove --no-samples from `options`, and return whether samples are written; UsageError if no
    document is."""
    left_out = bool(options.pop("no_samples"))
    if left_out and export_as != DOCUMENT and (output is None or export_as == EVENTS):
        raise UsageError("--no-samples is an option of the JSON document: add --json")
    return not left_out


json_option = _format_option(DOCUMENT)
control_option = flag(
    "--control", "Take pause, resume and cancel from stdin; its end cancels the run.", hidden=True
)
fail_on_option = value(
    "--fail-on 2%", "Exit 4 if a later run, or side B, is slower by more.", callback=_share
)
anonymize_option = flag(
    "--anonymize", "Replace the names of users, machine, folders and files, and the UUIDs of GPUs."
)
no_samples_option = flag(
    "--no-samples", "Leave the samples out of the JSON document; the statistics stay."
)

run_options = all_of(
    value(
        "--budget SECONDS",
        "Wall time; default 45 (17 with --quick), 60 for your own code; up to 60 (20) more for"
        " open rows.",
        "budget_s",
        type=Seconds(1),
    ),
    flag("--quick", "Smaller sizes and a smaller budget."),
    flag("--thorough", "More rounds, narrower intervals (300 s)."),
    names_option(
        "--device DEVICE", "cpu, gpu, cuda:0 ..., or the simulated fake:0@SPEED.", "devices"
    ),
    names_option("--backend NAME", f"{', '.join(catalog.backends())}.", "backends"),
    names_option("--precision NAME", f"{', '.join(PRECISIONS)}.", "precisions"),
    names_option("--mode NAME", "Modes to compare: plain, compile, fused, nhwc ...", "modes"),
    value(
        "--threads N[,N...]",
        "CPU threads of every candidate; several are compared.",
        callback=_numbers,
    ),
    value(
        "--batch N[,N...|..N]",
        "Batch size; several make a curve, and 1..256 takes every doubling.",
        callback=_numbers,
    ),
    _repeatable(
        "--set NAME=VALUE",
        "A parameter of the workload (workbench list); several values as for --batch.",
        "settings",
    ),
    value("--python PATH", "Interpreter of the workers, with its own torch or onnxruntime."),
    value("--seed N", "Seed for data and weights.", type=click.IntRange(0, 2**31 - 1), default=0),
    value(
        "--trace FILE",
        "Afterwards profile a few steps of each candidate into a Chrome or Perfetto trace.",
    ),
    flag("--strict", "Exit 3 if the confidence of a verdict is `open`."),
    flag("--strict-samples", "Exit 3 if the run or a result carries a warning."),
    *map(_format_option, FORMATS),
    no_samples_option,
    value("--output FILE", "Write the JSON document (with --jsonl: the events) to FILE."),
    click.option("-v", "--verbose", is_flag=True, help="Write the log of the run to stderr."),
    control_option,
)
price_options = all_of(
    _repeatable(
        "--price DEVICE=PER_HOUR",
        "Price per hour, e.g. gpu=2.99; adds the cheapest candidate.",
        "prices",
    ),
    value("--prices FILE.toml", "Prices per hour from a file.", "price_file"),
)
scenario_options = all_of(
    value(
        "--scenarios FILE.toml",
        "Your own scenarios file; runs only these unless you name others.",
        "scenario_file",
    ),
    flag(
        "--all",
        "Include scenarios that race by name only (default budget 300 s, 60 s with --quick).",
        "all_scenarios",
    ),
    flag("--crossover", "Also find the size at which the lead changes (uses half the budget)."),
    price_options,
    _repeatable(
        "--what-if DEVICE",
        "Compare with a device you do not have, or all in a folder, from recorded runs.",
        "what_if",
    ),
)
model_options = all_of(  # for a command that takes the file as its argument
    click.option(
        "--objective",
        type=click.Choice(OF_MODELS),
        help="Objective of the pick; default latency (median time of one run); for your own code"
        f" {' or '.join(OF_CODE)}.",
    ),
    value(
        "--max-error SHARE",
        "Largest relative error of the outputs against the original's; default 0.02 for"
        " a model, by precision for your own code.",
        type=float,
    ),
    value(
        "--min-agreement SHARE",
        "Alternative to --max-error: minimum top-1 agreement (0-1).",
        type=float,
    ),
    value("--inputs FILE.npz", "Real inputs by name, for checks and calibration; default random."),
    _repeatable("--shape NAME=1,3,224,224", "The shape of an input with dynamic axes.", "shapes"),
    value(
        "--save-best OUT", "Write the pick to a file (--model), or to a new folder (your own code)."
    ),
)
own_options = all_of(
    value("--model M.onnx", "Your own ONNX model; default budget 30 s."),
    model_options,
    value(
        "--torch TARGET",
        "Your own torch module: package.module:build, script.py[::Name] or model.pt2.",
    ),
    value("--function MODULE:NAME", "Your own Python function."),
    value("--command COMMAND", "Your own command; {NAME} marks where each value of --over goes."),
    _repeatable("--over NAME=V1,V2", "The values of {NAME} in --command.", "over"),
    value("--until REGEX", "Time --command until it prints a line that matches."),
    flag("--train", "Race the training step of --torch."),
    flag(
        "--allow-pickle", "Let --torch load a .pt or .pth file, which can run any code.", "pickled"
    ),
    click.option("--argument", "arguments", multiple=True, hidden=True, type=click.UNPROCESSED),
)
