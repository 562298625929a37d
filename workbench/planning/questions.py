"""Questions about the user's own model or code, as options of the command line."""

import glob
import math
import os
import re
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ..stats.objectives import OF_CODE, OF_MODELS
from ..text.sanitize import shown
from ..worker.code import COMMAND, FUNCTION, KINDS, OWN, TORCH, Code, placeholders
from .scenario import Scenario

MAX_ERROR = 0.02  # default limit of the relative error
MODEL = "model"
BELONGS = {  # the fields of the questions, with the kinds of code that have them
    **dict.fromkeys(("objective", "save_best"), (MODEL, *KINDS)),
    "max_error": (MODEL, TORCH, FUNCTION),
    **dict.fromkeys(("min_agreement", "inputs", "shapes"), (MODEL,)),
    **dict.fromkeys(("over", "until"), (COMMAND,)),
    **dict.fromkeys(("train", "pickled", "arguments"), (TORCH,)),
}
UNUSED = {  # options of a run that do not apply to a kind of code
    MODEL: ("--mode",),
    FUNCTION: ("--backend", "--precision", "--mode"),
    COMMAND: ("--backend", "--precision", "--mode", "--threads", "--batch"),
}
MODES = ("plain", "nhwc", "compile", "reduce-overhead", "graph", "fused", "keep")  # joined by "+"
PICKLES = (".pt", ".pth")
MOST = 64  # combinations of the values of --over in one race
TARGETS = {TORCH: "package.module:build, script.py, or model.pt2", FUNCTION: "package.module:work"}
QUOTED = re.compile(r"""'[^']*'|"[^"]*"|\\.""")
# Syntax that only a shell understands; & and ; inside a word may belong to an address.
SHELL = re.compile(r"(?<!\S)&(?!\S)|\S*(&&|[|<>])\S*|;(?!\S)|(?<!\S)~(?=/)|\$[\w{(]\w*")
_NAME = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
_MODULE_AND_NAME = re.compile(f"{_NAME}:{_NAME}")


def set_by(name: str, default: Any) -> Any:
    """A field that an option of the command line sets."""
    return field(default=default, metadata={"option": name})


def check_share(option: str, share: float | None) -> None:
    if share is not None and not 0 < share <= 1:  # NaN fails this comparison
        raise ValueError(f"{option} must be above 0, and 1 at most")


@dataclass(frozen=True)
class ModelQuestion:
    target: str  # the file
    objective: str = set_by("--objective", "latency")
    max_error: float | None = set_by("--max-error", None)
    min_agreement: float | None = set_by("--min-agreement", None)
    inputs: str | None = set_by("--inputs", None)
    shapes: tuple[str, ...] = set_by("--shape", ())  # "name=1,3,224,224"
    save_best: str | None = set_by("--save-best", None)
    kind: ClassVar[str] = MODEL
    option: ClassVar[str] = "--model"
    arguments: ClassVar[tuple[str, ...]] = ()

    @property
    def metric(self) -> str:
        """The metric that `limit` applies to."""
        return "relative_error" if self.min_agreement is None else "disagreement"

    @property
    def limit(self) -> float:
        if self.min_agreement is not None:
            return 1.0 - self.min_agreement
        return MAX_ERROR if self.max_error is None else self.max_error

    def run_shapes(self) -> dict[str, list[int]]:
        """The requested shapes by input; ValueError says what is wrong with one."""
        found: dict[str, list[int]] = {}
        for text in self.shapes:
            name, equals, listed = text.rpartition("=")
            try:
                axes = [int(axis) for axis in listed.split(",")]
            except ValueError:
                axes = []
            if not (equals and name and axes) or axes[0] < 1 or min(axes) < 0:
                raise ValueError(f"--shape takes NAME=1,3,224,224, not {text!r}")
            if name in found:
                raise ValueError(f"--shape: {name} is given twice")
            found[name] = axes
        return found

    def scenario(self) -> Scenario:
        """The scenario, before the model is read."""
        name = shown(Path(self.target).name)
        return Scenario(
            id="model",
            title=name,
            question="Which variant of the model should be shipped, and where should it run?",
            textbook="",
            workload="model",
            objective=self.objective,  # type: ignore[arg-type]  # checked before
            precisions=("fp32", "fp16", "int8"),
            params={"file": name},
            max_error=self.limit,
        )

    def check(self) -> None:
        """Raise ValueError for options that no model could satisfy."""
        if not self.target:
            raise ValueError("--model takes the path of an .onnx file")
        for option, path in (("--model", self.target), ("--save-best", self.save_best or "")):
            try:
                path.encode()
            except UnicodeEncodeError:
                why = "is not UTF-8, and ONNX Runtime takes no other name; choose another"
                raise ValueError(f"{option}: the name {path} {why}") from None
        if self.objective not in OF_MODELS:
            raise ValueError(f"--objective is one of {', '.join(OF_MODELS)}")
        if self.max_error is not None and self.min_agreement is not None:
            raise ValueError("--max-error and --min-agreement exclude each other")
        check_share("--max-error", self.max_error)
        check_share("--min-agreement", self.min_agreement)
        self.run_shapes()


@dataclass(frozen=True)
class OwnQuestion:
    """The options that name the user's own code and its objective."""

    kind: str  # one of worker.code.KINDS
    target: str
    arguments: tuple[str, ...] = ()  # those after `--`, for a script
    objective: str = set_by("--objective", "latency")
    max_error: float | None = set_by("--max-error", None)  # relative; None: as suits the precision
    train: bool = set_by("--train", False)
    # Values of a command's placeholders, such as "device=cpu,cuda".
    over: tuple[str, ...] = set_by("--over", ())
    until: str | None = set_by("--until", None)  # pattern of the line that ends the timing
    pickled: bool = set_by("--allow-pickle", False)
    save_best: str | None = set_by("--save-best", None)  # folder
    directory: str = ""  # where modules and files are found; "": the current one

    def code(self, folder: str, directory: str, seed: int) -> Code:
        same = "kind", "target", "arguments", "train", "pickled", "until", "max_error"
        own = {name: getattr(self, name) for name in same}
        return Code(folder=folder, directory=self.directory or directory, seed=seed, **own)

    def scenario(self) -> Scenario:
        """The scenario, before the code is examined."""
        name = shown(self.code("", "", 0).name, 60)
        return Scenario(
            id=OWN,
            title=name,
            question="Where and how should this code run?",
            textbook="",
            workload=OWN,
            objective=self.objective,  # type: ignore[arg-type]  # checked before
            precisions=("fp32", "tf32", "bf16", "fp16", "int8", "fp64"),
            modes=None,
            params={"code": name} if self.kind != COMMAND else {},
        )

    @property
    def option(self) -> str:
        return f"--{self.kind}"

    def check(self) -> None:
        """Raise ValueError for options that no code could satisfy, and for a missing file."""
        if self.objective not in OF_CODE:
            raise ValueError(f"{self.option} takes --objective {' or '.join(OF_CODE)}")
        check_share("--max-error", self.max_error)
        if self.kind != COMMAND:
            self._check_target()
            return
        try:
            with warnings.catch_warnings(action="ignore"):  # FutureWarning: nested sets in patterns
                re.compile(self.until or "")
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"--until is not a regular expression: {error}") from None
        parse_over(self.over, self.target)

    def _check_target(self) -> None:
        script, is_named, _ = self.target.partition(".py::")
        file = f"{script}.py" if is_named else self.target
        suffix = Path(file).suffix
        if self.arguments and suffix != ".py":
            raise ValueError("what follows -- belongs to a script: --torch script.py -- ARGUMENTS")
        if self.kind != TORCH or suffix not in (".py", ".pt2", *PICKLES):
            self._check_name(file, suffix)
        elif not os.path.isfile(os.path.join(self.directory, file)):  # noqa: PTH113, PTH118 - long names
            raise ValueError(f"--torch: there is no file {file}")
        elif suffix in PICKLES and not self.pickled:
            why = "is a pickle, and loading it runs any code that it holds"
            remedy = "save it with torch.export.save as .pt2, or trust it with --allow-pickle"
            raise ValueError(f"--torch: {file} {why}; {remedy}")
        elif self.train and self.save_best is not None:
            why = "saves a training only with a builder"
            raise ValueError(f"--save-best {why}: --torch package.module:build")

    def _check_name(self, file: str, suffix: str) -> None:
        """Raise ValueError unless the target is a module and a name in it."""
        module, _, name = self.target.partition(":")
        if module.endswith(".py") and name:
            dotted = f"{module[:-3].removeprefix('./').replace('/', '.')}:{name}"
            able = [f"{dotted}, without .py"] if _MODULE_AND_NAME.fullmatch(dotted) else []
            if self.kind == TORCH:
                able.append(f"{module}::{name}, which runs it")
            raise ValueError(f"{self.option} takes {', or '.join(able) or TARGETS[self.kind]}")
        if _MODULE_AND_NAME.fullmatch(self.target):
            return
        if suffix == ".onnx":
            instead = f"`workbench model {shlex.quote(file)}` does"
            raise ValueError(f"{self.option} takes no ONNX file, but {instead}")
        if suffix == ".ipynb":
            made = f"`jupyter nbconvert --to script {shlex.quote(file)}`"
            raise ValueError(f"{self.option} takes no notebook; {made} makes a script")
        found = f", not {self.target!r}" if self.target else ""
        raise ValueError(f"{self.option} takes {TARGETS[self.kind]}{found}")


def parse_over(texts: Sequence[str], command: str) -> dict[str, list[str]]:
    """The values of each axis such as `workers=0,2,4`.

    Raises ValueError unless axes and placeholders of `command` match one to one and each axis has
    values that differ.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"--command: {error} in {command!r}") from None
    if not words:
        raise ValueError("--command is empty")
    plain = QUOTED.sub("", command)
    patterns = (word for word in plain.split() if "*" in word)
    matched = (each for each in patterns if next(glob.iglob(each), None))  # noqa: PTH207 - absolute
    syntax = SHELL.search(plain)
    if found := syntax[0] if syntax else next(matched, None):
        why = "commands run without a shell"
        way = f"write `sh -c '...'` around {found!r}, or quote it as text"
        raise ValueError(f"--command: {why}, so {way}")
    names = placeholders(" ".join(words))
    axes: dict[str, list[str]] = {}
    for text in texts:
        name, equals, listed = (part.strip() for part in text.partition("="))
        if not equals:
            raise ValueError(f"--over takes NAME=VALUE,VALUE, not {text!r}")
        if name not in names:
            raise ValueError(f"--over {name}: the command has no placeholder {{{name}}}")
        if name in axes:
            raise ValueError(f"--over {name} is given twice")
        axes[name] = values = [value.strip() for value in listed.split(",")]
        shown = {value.rpartition("/")[2] for value in values}  # as in ids of cases
        if len(shown) < len(values) or "" in values or not listed.isprintable():
            why = "a value is empty or not printable, or two have the same last part after `/`"
            raise ValueError(f"--over {name}: {why} in {listed!r}")
    if missing := [name for name in names if name not in axes]:
        add = f"add --over {missing[0]}=VALUE,VALUE, or write {{{{{missing[0]}}}}} for braces"
        raise ValueError(f"the command has {{{missing[0]}}}: {add}")
    if math.prod(map(len, axes.values())) > MOST:
        raise ValueError(f"--over: at most {MOST} combinations can race")
    return axes
