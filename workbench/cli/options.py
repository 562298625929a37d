"""The options that commands share."""

from collections.abc import Callable, Collection, Iterable
from copy import copy
from typing import Any, TypeVar

import click

from .. import catalog
from ..contract import PRECISIONS
from ..export.formats import DOCUMENT, EVENTS, FORMATS, PLAIN
from ..planning.number_lists import whole_numbers, words
from ..planning.objectives import OF_CODE, OF_MODELS
from ..planning.usage import UsageError
from .program import check_value

F = TypeVar("F", bound=Callable[..., Any])


def _numbers(_: click.Context, option: click.Parameter, text: str | None) -> tuple[int, ...]:
    """One or several whole numbers: `8`, `1,8,64`, `1..256`."""
    return () if text is None else whole_numbers(option.opts[0], text)


def _format_option(name: str) -> Callable[[F], F]:
    return click.option(f"--{name}", f"as_{name}", is_flag=True, help=FORMATS[name].help)


def _words(_: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Several names: `cpu,gpu`, or the option several times."""
    for text in texts:
        check_value(option, text)
    return words(texts)


def _repeatable(name: str, field: str, metavar: str, text: str, **more: Any) -> Callable[[F], F]:
    text = f"{text}  Repeatable."
    return click.option(name, field, multiple=True, metavar=metavar, help=text, **more)


def names_option(name: str, field: str, text: str, metavar: str = "NAME") -> Callable[[F], F]:
    return _repeatable(name, field, metavar, text, callback=_words)


def all_of(options: Iterable[Callable[[F], F]]) -> Callable[[F], F]:
    """A decorator that gives a command these options, in this order."""

    def decorate(command: F) -> F:
        for option in reversed([*options]):
            command = option(command)
        return command

    return decorate


def adapt(
    command: click.Command,
    without: Collection[str] = (),
    hidden: Collection[str] = (),
    **texts: str,
) -> None:
    """Drop the options that the command does not take, and reword the help of others.

    `hidden` options do nothing; the commands of earlier runs may contain them.
    """
    command.params = [copy(each) for each in command.params if each.name not in without]
    for option in command.params:
        if isinstance(option, click.Option):
            option.help = texts.get(option.name or "", option.help)
            option.hidden = option.hidden or option.name in hidden


def format_options(*, whole: bool = False) -> Callable[[F], F]:
    """An option for each export format, or for each that takes a `whole` run."""
    names = [n for n, exporter in FORMATS.items() if exporter.whole is not None or not whole]
    return all_of(map(_format_option, names))


def chosen_format(options: dict[str, Any]) -> str | None:
    """Take the options of formats out of `options`; None where none is chosen.

    Text may be combined with another format, which then counts.
    """
    chosen = [name for name in FORMATS if options.pop(f"as_{name}", False)]
    others = [name for name in chosen if name != PLAIN]
    if len(others) > 1:
        raise UsageError(f"--{others[0]} and --{others[1]} exclude each other")
    return next(iter(others or chosen), None)


def keeps_samples(
    options: dict[str, Any], export_as: str | None, output: str | None = None
) -> bool:
    """Take --no-samples out of `options`; UsageError if no document is written."""
    left_out = bool(options.pop("no_samples"))
    if left_out and export_as != DOCUMENT and (output is None or export_as == EVENTS):
        raise UsageError("--no-samples is an option of the JSON document: add --json")
    return not left_out


json_option = _format_option(DOCUMENT)
anonymize_option = click.option(
    "--anonymize",
    is_flag=True,
    help="Replace names of users, machine, paths, files; UUIDs of GPUs.",
)
no_samples_option = click.option(
    "--no-samples",
    is_flag=True,
    help="Leave the samples out of the JSON document; the statistics stay.",
)

SHARED = [
    click.option(
        "--budget",
        "budget_s",
        type=float,
        metavar="SECONDS",
        help="Wall time; without it advise takes 60, or 20 with --quick, and up to twice"
        " that for open rows.",
    ),
    click.option("--quick", is_flag=True, help="Smaller sizes (default budget 20 s)."),
    click.option("--thorough", is_flag=True, help="More rounds, narrower intervals (300 s)."),
    names_option(
        "--device", "devices", "cpu, gpu, cuda:0 ..., or the simulated fake:0@SPEED.", "DEVICE"
    ),
    names_option("--backend", "backends", f"{', '.join(catalog.backends())}."),
    names_option("--precision", "precisions", f"{', '.join(PRECISIONS)}."),
    names_option("--mode", "modes", "Modes to compare: plain, compile, fused, nhwc ..."),
    click.option(
        "--threads",
        callback=_numbers,
        metavar="N[,N...]",
        help="CPU threads of every candidate; several are compared.",
    ),
    click.option(
        "--batch",
        callback=_numbers,
        metavar="N[,N...|..N]",
        help="Batch size; several make a curve, and 1..256 takes every doubling.",
    ),
    _repeatable(
        "--set",
        "settings",
        "NAME=VALUE",
        "A parameter of the workload (workbench list); several values as for --batch.",
    ),
    click.option(
        "--python",
        metavar="PATH",
        help="Interpreter of the workers, with its own torch or onnxruntime.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0, 2**31 - 1),
        default=0,
        metavar="N",
        help="Seed for data and weights.",
    ),
    click.option(
        "--trace",
        metavar="FILE",
        help="Afterwards profile a few steps of each candidate into a Chrome or Perfetto trace.",
    ),
    click.option("--strict", is_flag=True, help="Exit 3 if the confidence of a verdict is `open`."),
    click.option("--strict-samples", is_flag=True, help="Exit 3 if a result carries a warning."),
    *map(_format_option, FORMATS),
    no_samples_option,
    click.option(
        "--output",
        metavar="FILE",
        help="Write the JSON document (with --jsonl: the events) to FILE.",
    ),
    click.option("-v", "--verbose", is_flag=True, help="Write the log of the run to stderr."),
    click.option(
        "--control",
        is_flag=True,
        hidden=True,
        help="Take pause, resume and cancel from stdin; its end cancels the run.",
    ),
]


run_options = all_of(SHARED)

PRICES = [
    _repeatable(
        "--price",
        "prices",
        "DEVICE=PER_HOUR",
        "Price per hour, e.g. gpu=2.99; adds the cheapest candidate.",
    ),
    click.option(
        "--prices", "price_file", metavar="FILE.toml", help="Prices per hour from a file."
    ),
]
OF_SCENARIOS = [
    click.option(
        "--scenarios",
        "scenario_file",
        metavar="FILE.toml",
        help="Your own scenarios file; runs only these unless you name others.",
    ),
    click.option(
        "--all",
        "all_scenarios",
        is_flag=True,
        help="Include the optional scenarios (default budget 300 s, 60 s with --quick).",
    ),
    click.option(
        "--crossover",
        is_flag=True,
        help="Also find the size at which the lead changes (uses half the budget).",
    ),
    *PRICES,
    _repeatable(
        "--what-if",
        "what_if",
        "DEVICE",
        "Compare with a device you do not have, from a recorded run.",
    ),
]


scenario_options = all_of(OF_SCENARIOS)

OF_A_MODEL = [
    click.option("--model", metavar="M.onnx", help="Your own ONNX model; default budget 30 s."),
    click.option(
        "--objective",
        type=click.Choice(OF_MODELS),
        help="What to optimise for; default latency (median time of one run); for your own code"
        f" {' or '.join(OF_CODE)}.",
    ),
    click.option(
        "--max-error",
        type=float,
        metavar="SHARE",
        help="Largest relative error of the outputs against the original's; default 0.02 for"
        " a model, by precision for your own code.",
    ),
    click.option(
        "--min-agreement",
        type=float,
        metavar="SHARE",
        help="Alternative to --max-error: minimum top-1 agreement (0-1).",
    ),
    click.option(
        "--inputs",
        metavar="FILE.npz",
        help="Real inputs by name, for checks and calibration; default random.",
    ),
    _repeatable(
        "--shape", "shapes", "NAME=1,3,224,224", "The shape of an input with dynamic axes."
    ),
    click.option(
        "--save-best",
        metavar="OUT",
        help="Write the pick to a file (--model), or to a new folder (your own code).",
    ),
]
OF_OWN_CODE = [
    click.option(
        "--torch",
        metavar="TARGET",
        help="Your own torch module: package.module:build, script.py[::Name] or model.pt2.",
    ),
    click.option("--function", metavar="MODULE:NAME", help="Your own Python function."),
    click.option(
        "--command",
        metavar="COMMAND",
        help="Your own command; {NAME} marks where each value of --over goes.",
    ),
    _repeatable("--over", "over", "NAME=V1,V2", "The values of {NAME} in --command."),
    click.option(
        "--until", metavar="REGEX", help="Time --command until it prints a line that matches."
    ),
    click.option("--train", is_flag=True, help="Race the training step of --torch."),
    click.option(
        "--allow-pickle",
        "pickled",
        is_flag=True,
        help="Let --torch load a .pt or .pth file, which can run any code.",
    ),
    click.option("--argument", "arguments", multiple=True, hidden=True, type=click.UNPROCESSED),
]


model_options = all_of(OF_A_MODEL[1:])  # of a command that takes the file as its argument
own_options = all_of([*OF_A_MODEL, *OF_OWN_CODE])
