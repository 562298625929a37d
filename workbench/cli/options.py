"""The options that every command with a run shares."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from .. import catalog
from ..contract import PRECISIONS
from ..planning.model_question import OBJECTIVES, ModelQuestion
from ..planning.request import whole_numbers
from ..planning.usage import UsageError

F = TypeVar("F", bound=Callable[..., Any])


def _numbers(_: click.Context, option: click.Parameter, text: str | None) -> tuple[int, ...]:
    """One or several whole numbers: `8`, `1,8,64`, `1..256`."""
    return () if text is None else whole_numbers(option.opts[0], text)


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")

SHARED = [
    click.option(
        "--budget",
        "budget_s",
        type=float,
        metavar="SECONDS",
        help="Wall time from process start to end; default 60, 20 with --quick.",
    ),
    click.option("--quick", is_flag=True, help="Smaller sizes, 20 s."),
    click.option("--thorough", is_flag=True, help="300 s: more rounds, narrower intervals."),
    click.option(
        "--device",
        "devices",
        multiple=True,
        metavar="DEVICE",
        help="cpu, gpu, cuda:0 ... or the simulated fake:0@SPEED; repeatable.",
    ),
    click.option(
        "--backend",
        "backends",
        multiple=True,
        metavar="NAME",
        help=f"{', '.join(catalog.backends())}; repeatable.",
    ),
    click.option(
        "--precision",
        "precisions",
        multiple=True,
        metavar="NAME",
        help=f"{', '.join(PRECISIONS)}; repeatable.",
    ),
    click.option(
        "--mode",
        "modes",
        multiple=True,
        metavar="NAME",
        help="plain, compile, fused, nhwc ...: the ways of doing it to race; repeatable.",
    ),
    click.option(
        "--threads",
        callback=_numbers,
        metavar="N[,N...]",
        help="CPU threads of every candidate; several race against one another.",
    ),
    click.option(
        "--batch",
        callback=_numbers,
        metavar="N[,N...|..N]",
        help="Batch size; several, as 1..256 for each doubling, make a curve.",
    ),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="A parameter of the workload, see workbench list; several values as for --batch.",
    ),
    click.option(
        "--python",
        metavar="PATH",
        help="Interpreter of the workers, with a torch or onnxruntime of its own.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0, 2**31 - 1),
        default=0,
        metavar="N",
        help="Seed of data and weights.",
    ),
    click.option(
        "--trace",
        metavar="FILE",
        help="Then profile a few steps of each candidate: a Chrome or Perfetto trace.",
    ),
    click.option("--strict", is_flag=True, help="Exit 3 if a result carries a warning."),
    json_option,
    click.option("--jsonl", "as_jsonl", is_flag=True, help="Events on stdout, one a line."),
    click.option("--plain", is_flag=True, help="Text, even in a terminal."),
    click.option(
        "--output",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Write the JSON document (with --jsonl: the events) to FILE.",
    ),
    click.option(
        "--control",
        is_flag=True,
        hidden=True,
        help="Take pause, resume and cancel from stdin; its end cancels the run.",
    ),
]


def run_options(command: F) -> F:
    """Give `command` the options of a run, in the order above."""
    for option in reversed(SHARED):
        command = option(command)
    return command


OF_SCENARIOS = [
    click.option(
        "--scenarios",
        "scenario_file",
        metavar="FILE.toml",
        help="Scenarios of your own, beside those of workbench list; unnamed, only these race.",
    ),
    click.option(
        "--all",
        "all_scenarios",
        is_flag=True,
        help="Those on request, too; 300 s, 60 with --quick.",
    ),
    click.option(
        "--crossover",
        is_flag=True,
        help="Half of the budget for the sizes at which another candidate takes the lead.",
    ),
    click.option(
        "--price",
        "prices",
        multiple=True,
        metavar="DEVICE=PER_HOUR",
        help="cpu=0.10, gpu=2.99, cuda:1=...: what is cheapest is told too; repeatable.",
    ),
    click.option("--prices", "price_file", metavar="FILE.toml", help="The same from a file."),
    click.option(
        "--what-if",
        multiple=True,
        metavar="DEVICE",
        help="Also tell of a device that is not here, from a recorded run of it; repeatable.",
    ),
]


def scenario_options(command: F) -> F:
    """Give `command` the options of scenarios."""
    for option in reversed(OF_SCENARIOS):
        command = option(command)
    return command


OF_A_MODEL = [
    click.option("--model", "file", metavar="M.onnx", help="An ONNX model of your own; 30 s."),
    click.option(
        "--objective",
        type=click.Choice(OBJECTIVES),
        help="What the best form is best at; default latency (median time of one run).",
    ),
    click.option(
        "--max-error",
        type=float,
        metavar="SHARE",
        help="Largest relative error of a form's outputs against the model's; default 0.02.",
    ),
    click.option(
        "--min-agreement",
        type=float,
        metavar="SHARE",
        help="Instead: the least share of answers whose largest entry stays the same.",
    ),
    click.option(
        "--inputs",
        metavar="FILE.npz",
        help="Real inputs by name, for checking and calibrating; random ones otherwise.",
    ),
    click.option(
        "--shape",
        "shapes",
        multiple=True,
        metavar="NAME=1,3,224,224",
        help="The shape of an input with dynamic axes; repeatable.",
    ),
    click.option("--save-best", metavar="OUT.onnx", help="Write the form that is recommended."),
]


def model_options(command: F) -> F:
    """Give `command` the options of --model."""
    for option in reversed(OF_A_MODEL):
        command = option(command)
    return command


def model_question(options: dict[str, Any]) -> ModelQuestion | None:
    """Take what belongs to --model out of `options`; None where there is no model."""
    names = ("file", "objective", "max_error", "min_agreement", "inputs", "shapes", "save_best")
    given = {name: value for name in names if (value := options.pop(name)) not in (None, ())}
    if given and "file" not in given:
        word = "shape" if "shapes" in given else next(iter(given)).replace("_", "-")
        raise UsageError(f"--{word} belongs to --model")
    return ModelQuestion(**given) if given else None


def examples(*lines: str) -> str:
    """An epilogue that click leaves unwrapped."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
