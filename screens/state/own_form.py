"""The fields of the form about the user's own code or model, and the question that they ask."""

import shlex
from collections.abc import Callable, Collection
from dataclasses import fields, replace
from functools import partial
from typing import Any

from workbench.planning.questions import BELONGS, MODEL, TARGETS, ModelQuestion, OwnQuestion
from workbench.planning.request import Request
from workbench.planning.usage import UsageError, unknown
from workbench.stats.objectives import OF_CODE, OF_MODELS
from workbench.worker.code import COMMAND, KINDS, TORCH

from .form_field import CURVE, FormField, only_one

OFFERED = (*KINDS, MODEL)
INFERENCE, TRAINING = "inference", "training"

_CODE = TARGETS | {COMMAND: "a command, such as python train.py", MODEL: "an .onnx file"}
_BATCH = FormField("batch", "batch", "its own", "items in a call", several=CURVE)
_OVER = FormField("over", "over", "", "values of a command's {device}: device=cpu,cuda")
_UNTIL = FormField(
    "until", "until", "its end", "time it until it prints a line that matches this pattern"
)
_ARGUMENTS = FormField("arguments", "arguments", "", "arguments of the script")
_STEP = replace(only_one("train", "what is timed", (INFERENCE, TRAINING)), label="step")
_ERROR = FormField("max_error", "max error", "by precision", "limit of the error", "0 to 1")
_AGREEMENT = FormField(
    "min_agreement", "agreement", "", "least share of equal top-1 classes, in place of max error"
)
_INPUTS = FormField("inputs", "inputs", "random", "a .npz file of real inputs by name")
_SAVE = FormField("save_best", "save best", "", "a new folder for the pick")
_FURTHER = (_STEP, _ARGUMENTS, _OVER, _UNTIL, _INPUTS, _BATCH, _ERROR, _AGREEMENT, _SAVE)
_OF_A_MODEL = {
    "batch": replace(_BATCH, several=""),
    "max_error": replace(_ERROR, default="0.02"),
    "save_best": replace(_SAVE, help="a new file for the pick"),
}


def about(kind: str) -> list[FormField]:
    """The fields of one kind of code."""
    kind = kind or TORCH
    goals, others = (OF_MODELS, _OF_A_MODEL) if kind == MODEL else (OF_CODE, {})
    further = (each for each in _FURTHER if kind in BELONGS.get(each.key, OFFERED))
    return [
        only_one("kind", "what the code is", OFFERED, decides=True),
        FormField("code", "code", "", _CODE.get(kind, "")),
        only_one("objective", "the objective of the pick", goals),
        *(others.get(each.key, each) for each in further),
    ]


def texts_of(before: Request) -> dict[str, str]:
    """The texts of the fields for the user's code or model in a request."""
    question = before.question
    if question is None:
        return {}
    found = {"kind": question.kind, "code": question.target}
    for name in {each.name for each in fields(question)} & {*_READ}:
        value = getattr(question, name)
        if name == "train":
            found[name] = TRAINING if value else ""
        elif isinstance(value, tuple):
            found[name] = shlex.join(value)
        else:
            found[name] = "" if value is None else str(value)
    return found


def question(before: Request, text: Callable[[str], str]) -> ModelQuestion | OwnQuestion:
    """The question of a request.  Options that the form lacks stay as they were for the same code.
    Raises UsageError for a text that its field does not take."""
    kind, target, asked = text("kind") or TORCH, text("code"), before.question
    if kind not in OFFERED:
        raise unknown("kind", kind, OFFERED)
    given = {name: read(text(name)) for name, read in _READ.items() if kind in BELONGS[name]}
    if asked is None or (asked.kind, asked.target) != (kind, target):
        asked = ModelQuestion(target) if kind == MODEL else OwnQuestion(kind, target)
    return replace(asked, **given)


def _words(option: str, text: str) -> Collection[str]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"{option}: {error} in {text!r}") from None


def number(text: str, takes: str) -> float | None:
    """The number in a field, None in an empty one; `takes` says what belongs there."""
    try:
        return float(text) if text else None
    except ValueError:
        raise UsageError(f"{takes}, not {text!r}") from None


_READ: dict[str, Callable[[str], Any]] = {  # by the fields of a question
    "objective": lambda text: text or OF_CODE[0],
    "arguments": partial(_words, "arguments"),
    "train": lambda text: text == TRAINING,
    "over": partial(_words, "--over"),
    "until": lambda text: text or None,
    "max_error": partial(number, takes="--max-error takes a number up to 1"),
    "min_agreement": partial(number, takes="--min-agreement takes a number up to 1"),
    "inputs": lambda text: text or None,
    "save_best": lambda text: text or None,
}
