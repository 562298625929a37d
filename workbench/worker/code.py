"""The description of the user's own code that the engine gives to workers."""

import importlib.util
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..text.sanitize import shown

OWN = "own"  # name of the workload, and id of its first row
TORCH, FUNCTION, COMMAND = "torch", "function", "command"
KINDS = (TORCH, FUNCTION, COMMAND)
MODEL = "model.onnx"  # the exported module, in `Code.folder` and in that of --save-best
MODULES = "modules.json"  # in `Code.folder`: what a script called, once it has run
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")  # sets a variable for the program that follows
# {name}, not the shell's ${name}; {{name}} stands for {name} itself.
_PLACEHOLDER = re.compile(r"\{(\{[A-Za-z_]\w*\})\}|(?<!\$)\{([A-Za-z_]\w*)\}")


def _cloudpickle() -> str:
    spec = importlib.util.find_spec("cloudpickle")
    return str(Path(spec.origin).parent) if spec is not None and spec.origin else ""


def command_words(command: str, values: Mapping[str, object]) -> list[str]:
    """The program and arguments of a command, with `values` for its placeholders."""
    words = shlex.split(command)
    if ASSIGNMENT.match(words[0]):
        words = ["env", *words]
    return [_PLACEHOLDER.sub(lambda m: m[1] or str(values[m[2]]), word) for word in words]


def placeholders(text: str) -> list[str]:
    return list(dict.fromkeys(m[2] for m in _PLACEHOLDER.finditer(text) if m[2]))


def guard_for(guard: str, *, compiles: bool) -> str:
    """The context of a call; not inference mode with max-autotune or CUDA graphs of torch.compile,
    which fail in it (pytorch#135892)."""
    return "no_grad" if compiles and guard == "inference_mode" else guard


def port_name(path: str) -> str:
    """The name of an exported graph's input: `mask` for a keyword, `input_0` for a position."""
    return f"input_{path}" if path[:1].isdigit() else path


@dataclass(frozen=True)
class Code:
    """What to run and how; every worker of a run gets it as text in `Setup.files["code"]`.

    `target` is `package.module:name`, a `.pt2` archive, `script.py` with or without `::Name`, or a
    command with `{placeholders}`.  Workers share weights, inputs and reference outputs in `folder`.
    """

    kind: str  # one of KINDS
    target: str
    folder: str
    directory: str  # the user's current one, where modules are found
    home: str = "cpu"  # the device on which it is examined and its reference is computed
    seed: int = 0
    arguments: tuple[str, ...] = ()  # those after `--`, for a script
    batch: int | None = None  # at which it is examined; None: its own
    seconds: float = 20.0  # after which a script is stopped
    train: bool = False
    pickled: bool = False  # a plain pickle may be loaded
    until: str | None = None  # pattern of the line that ends the timing of a command
    max_error: float | None = None  # relative; None: the default for the precision
    # The path of the engine's package, for an interpreter without it.
    cloudpickle: str = field(default_factory=_cloudpickle)

    @property
    def name(self) -> str:
        """Its name without folders, as in case ids; for a command the command itself."""
        return self.target.rpartition("/")[2] if self.kind != COMMAND else shown(self.target, 60)

    @property
    def is_script(self) -> bool:
        return self.kind == TORCH and self.target.partition("::")[0].endswith(".py")

    def as_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> "Code":
        decoded: dict[str, Any] = json.loads(text)
        return cls(**{**decoded, "arguments": tuple(decoded["arguments"])})
