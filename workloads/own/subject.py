"""A user's torch module and what it is called with, the same in every worker of a run.

The first worker that needs weights, inputs or reference outputs leaves them in `Code.folder` for
the others: a builder may be random, and what differs cannot be compared.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from workbench.contract import WorkloadError
from workbench.text.sanitize import shown
from workbench.worker.code import Code

from . import target
from .target import seed_loaded, user_errors
from .tree import Example, module_with_inputs

ARCHIVES = (".pt2", ".pt", ".pth")
WEIGHTS, INPUTS, MODULES = "weights.pt", "inputs.pt", "modules.json"
DEFAULT_BATCH = 1  # where only `inputs(batch)` is given


class Subject:
    """A module of the user; `module` is on the device `code.home`, in evaluation mode unless it is
    trained, and never changed."""

    def __init__(
        self, code: Code, module: Any, example: Example | None, *, build: Any = None
    ) -> None:
        self.code = code
        self.was_training = any(part.training for part in module.modules())
        self.module = (module if code.train else module.eval()).to(code.home)
        self.name = code.name
        self._build = build
        self._example = example
        self._folder = Path(code.folder)
        self.namespace = sys.modules.get(code.target.partition(":")[0])
        self._share_weights()

    def part(self, name: str) -> Any:
        """What stands next to `build` under this name, or is an attribute of it; None without."""
        found = getattr(self._build, name, None)
        return getattr(self.namespace, name, None) if found is None else found

    @property
    def own_batch(self) -> int | None:
        """The batch of the user's example; None where there is no axis that all inputs share."""
        given = None if self._example is None else self._example.batch
        if given is None and self.takes_batch:
            return self.example(DEFAULT_BATCH).batch
        return self.example(None).batch if self._example is None else given

    @property
    def takes_batch(self) -> bool:
        """Whether `inputs(batch)` makes any batch."""
        inputs = self.part("inputs")
        return inputs is not None and bool(inspect.signature(inputs).parameters)

    def example(self, batch: int | None) -> Example:
        """The inputs at `batch`; None: the user's own."""
        kept = self._folder / f"b{batch or 0}" / INPUTS
        import torch

        if kept.exists():  # ours, and it may hold types of the user
            found: Example = torch.load(kept, map_location="cpu", weights_only=False)
            return found
        made = self._made(batch).mapped(lambda tensor: tensor.cpu())
        if batch is not None and made.batch not in (None, batch):
            raise WorkloadError(
                f"inputs({batch}) of {self.name} makes a batch of {made.batch}",
                code="bad_input",
                hint="let the first axis of every input be the batch",
            )
        keep(made, kept)
        return made

    def drawn(self, batch: int | None, count: int) -> list[Example]:
        """Inputs from other seeds, or the example alone where `inputs(batch)` is missing."""
        if not self.takes_batch:
            return [self.example(batch)]
        found = []
        for number in range(1, count + 1):
            seed_loaded(self.code.seed + number)
            with user_errors(f"inputs of {self.name}"):
                found.append(as_example(self.part("inputs")(batch or DEFAULT_BATCH)))
        return found

    def _made(self, batch: int | None) -> Example:
        given, inputs = self._example, self.part("inputs")
        if given is not None and batch in (None, given.batch):
            return given
        if inputs is not None and (given is None or self.takes_batch):
            seed_loaded(self.code.seed)
            with user_errors(f"inputs of {self.name}"):
                if self.takes_batch:
                    return as_example(inputs(batch or DEFAULT_BATCH))
                given = as_example(inputs())
        if given is not None and batch in (None, given.batch):
            return given
        if given is None:
            raise WorkloadError(
                f"{self.name} gives no inputs to call its module with",
                code="bad_input",
                hint="return (module, args) from it, or define inputs(batch) next to it",
            )
        if given.batch is None:
            raise WorkloadError(
                f"the inputs of {self.name} share no first axis, so there is no other batch",
                code="bad_input",
                hint="leave out --batch, or define inputs(batch) next to it",
            )
        return given.resized(batch or given.batch)

    def copy(self) -> Any:
        """A fresh module with the same weights."""
        try:
            return copy.deepcopy(self.module)
        except Exception:  # a module that holds what cannot be copied, such as an open file
            if self._build is None:
                raise
            fresh = built(self.code, self._build)[0]
            fresh.load_state_dict(self.module.state_dict())
            return fresh.train(self.module.training)

    def on(self, device: Any) -> Any:
        """A fresh module on `device`, built there if its builder takes a device."""
        if device.type == "cpu" or self._build is None or not takes_device(self._build):
            return self.copy().to(device)
        fresh = built(self.code, self._build, str(device))[0].to(device)
        fresh.load_state_dict(self.module.state_dict())
        return fresh.train(self.module.training)

    def _share_weights(self) -> None:
        import torch

        kept = self._folder / WEIGHTS
        if not kept.exists():
            keep(self.module.state_dict(), kept)
            return
        try:
            weights = torch.load(kept, map_location="cpu", weights_only=False)
            self.module.load_state_dict(weights)
        except (RuntimeError, KeyError) as error:
            raise WorkloadError(
                f"{self.name} builds another module each time, so nothing can be compared",
                code="bad_input",
                hint="make it depend on its arguments and the random seed alone",
            ) from error


@cache
def subject(code: Code) -> Subject:
    """The subject of `code`, built once in each process."""
    file, _, name = code.target.partition("::")
    if file.endswith(".py"):
        return _of_script(code, name)
    if file.endswith(ARCHIVES):
        from . import archive

        return Subject(code, *archive.opened(Path(code.directory, file), code.pickled))
    build = target.resolve(code)
    module, example = built(code, build)
    return Subject(code, module, example, build=build)


def _of_script(code: Code, name: str) -> Subject:
    """The module that a script calls; only the first worker runs the script."""
    from . import script

    folder = Path(code.folder)
    if (folder / MODULES).exists():
        if why := json.loads((folder / MODULES).read_text())["not_handed_over"]:
            raise WorkloadError(why, code="unsupported", hint="name a function that builds it")
        return Subject(code, *script.received(code))
    ran = script.run(code)
    chosen = script.choose(ran, name)
    folder.mkdir(parents=True, exist_ok=True)
    listed = [
        {
            "name": shown(each.name, 60),
            "calls": each.calls,
            "seconds": each.seconds,
            "share": min(1.0, each.seconds / ran.seconds),  # calls in threads may overlap
            "shapes": [shown(shape, 60) for shape in each.shapes],
            "chosen": each is chosen,
        }
        for each in ran.modules
    ]
    found = {"modules": listed, "cut": ran.cut, "notes": [*ran.notes, *chosen.notes]}
    found["not_handed_over"] = script.hand_over(chosen, ran, code)
    (folder / MODULES).write_text(json.dumps(found))
    return Subject(code, chosen.module, chosen.example)


def built(code: Code, build: Any, device: str = "cpu") -> tuple[Any, Example | None]:
    """The module that `build` returns, and its inputs where it returns some."""
    from torch import nn

    seed_loaded(code.seed)
    returned = build
    if callable(build) and not isinstance(build, nn.Module):  # a module may be named itself
        with user_errors(code.name):
            returned = build(device=device) if takes_device(build) else build()
    found = module_with_inputs(returned)
    if found is None:
        raise WorkloadError(
            f"{code.name} returns {type(returned).__name__}, not a torch module",
            code="bad_target",
            hint="return a module, (module, args) or (module, args, kwargs)",
        )
    return found


def keep(value: Any, file: Path) -> None:
    """Write `file` whole or not at all: a process that is killed leaves no half of it."""
    import torch

    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(value, file.with_suffix(".new"))
    file.with_suffix(".new").replace(file)


def takes_device(function: Any) -> bool:
    try:
        return "device" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return False


def as_example(given: Any) -> Example:
    """The arguments that `inputs(batch)` stands for."""
    if isinstance(given, Mapping):
        return Example((), dict(given))
    if not isinstance(given, (tuple, list)):
        return Example((given,), {})
    if len(given) == 2 and isinstance(given[0], (tuple, list)) and isinstance(given[1], Mapping):
        return Example(tuple(given[0]), dict(given[1]))
    return Example(tuple(given), {})


def hash_of(example: Example) -> str:
    """SHA-256 of the tensors' values, shapes and types."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in example.tensors().items():
        plain = tensor.detach().cpu().to_dense().contiguous()
        digest.update(f"{name}{tuple(plain.shape)}{plain.dtype}".encode())
        if plain.numel():
            digest.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
