"""A stand-in for workloads.own.subject: a module, and what to call it with at any batch."""

import copy
from collections.abc import Iterator
from typing import Any

from workbench.worker.code import Code
from workloads.own.subject import found_in
from workloads.own.tree import Example


class Subject:
    def __init__(self, module: Any, *args: Any, name: str = "net:build", **kwargs: Any) -> None:
        self.module = module.eval()
        self.name = name
        self.given = Example(args, kwargs)
        self.namespace: Any = None
        self.code = Code("torch", name, "", "")

    def example(self, batch: int | None) -> Any:
        """The tensors' rows, repeated up to `batch`."""
        if batch is None:
            return self.given
        return self.given.mapped(
            lambda tensor: tensor.repeat(batch, *[1] * (tensor.dim() - 1))[:batch].clone()
        )

    def part(self, name: str) -> Any:
        return getattr(self.namespace, name, None)

    def found(self, name: str) -> Iterator[Any]:
        return found_in((self.namespace,), name)

    def copy(self) -> Any:
        return copy.deepcopy(self.module)

    def drawn(self, batch: int | None, count: int) -> list[Any]:
        return [self.example(batch)]
