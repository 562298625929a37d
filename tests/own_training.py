"""A module with the functions of its file, trained by hand."""

import copy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from workbench.contract import Case, Setup
from workbench.worker.code import Code
from workloads.own import training
from workloads.own.subject import found_in
from workloads.own.training import Training
from workloads.own.tree import Example

BATCH = 4


FIXTURES = Path(__file__).parent / "fixtures" / "own"


class Stub:
    """A subject: a module, its example inputs, and the functions of its file."""

    name = "net:build"
    code = Code("torch", name, "", "")
    namespace: Any = SimpleNamespace()

    def __init__(self, module: nn.Module, *args: Any, **functions: Any) -> None:
        self.module, self.args, self.functions = module, args, functions
        self.kwargs: dict[str, Any] = {}

    def part(self, name: str) -> Any:
        return self.functions.get(name)

    def found(self, name: str) -> Iterator[Any]:
        return found_in((SimpleNamespace(**self.functions), self.namespace), name)

    def example(self, batch: int | None) -> Example:
        return Example(self.args, self.kwargs)

    def copy(self) -> Any:
        return copy.deepcopy(self.module)

    def on(self, device: Any) -> Any:
        return self.copy().to(device)


class Numbers(Dataset[Any]):
    """Eight samples (3,) with a class each; `wait` stands for slow reading."""

    def __init__(self, wait: Any = None, size: int = 8) -> None:
        torch.manual_seed(1)
        self.values, self.wait = torch.randn(size, 3), wait

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if self.wait is not None:
            self.wait()
        return self.values[index], index % 2


def dropped() -> Stub:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 2))
    return Stub(module, torch.randn(BATCH, 3), loss=lambda output: output.square().mean())


def convolved() -> Stub:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())

    def loss(output: Any, batch: Any) -> Any:
        return (output.sum(1) - batch.mean()).square().mean()

    return Stub(module, torch.randn(BATCH, 3, 8, 8), loss=loss)


def supervised(**functions: Any) -> Stub:
    def loss(output: Any, batch: Any) -> Any:
        return nn.functional.cross_entropy(output, batch[1])

    torch.manual_seed(0)
    return Stub(nn.Linear(3, 2), **{"loss": loss, "dataset": Numbers, **functions})


class Answer(nn.Module):
    """Returns an object with a loss, if there are labels, as the models of Hugging Face do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, values: Any, labels: Any = None) -> Any:
        logits = self.inner(values)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return SimpleNamespace(loss=loss, logits=logits)


def code_in(folder: Path, **settings: Any) -> Code:
    return Code("torch", "net:build", str(folder), str(folder), train=True, **settings)


def task_of(
    one: Stub,
    folder: Path,
    precision: str = "fp32",
    mode: str | None = None,
    batches: int = 1,
    active: bool = True,
    **settings: Any,
) -> Training:
    tuning = {name: settings.pop(name) for name in ("workers",) if name in settings}
    params = {"code": "build", "batches": batches}
    batch = BATCH if one.part("dataset") or one.part("loader") else None
    case = Case("own", "cpu", "torch", precision, None, 1, batch, params, mode, tuning)
    made = Training(case, Setup(), code_in(folder, **settings), one)
    if active:
        made.activate()
    return made


def examined(one: Stub, folder: Path) -> dict[str, Any]:
    return training.examine(code_in(folder), one)


def weights_after(task: Training, steps: int) -> list[Any]:
    for _ in range(steps):
        torch.manual_seed(5)  # the same dropout
        task.step()
    task.close()
    return [weight.detach() for weight in task.network.parameters()]
