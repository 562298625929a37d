"""The DataLoader of a script, where its batches are what the script gives its module."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from workbench.worker.libraries import torch

from .tree import Example


class Fed(NamedTuple):
    """A batch, and what makes others; an iterator would keep its processes alive."""

    batch: Any
    make: Callable[[], Any]  # a call of `_loader`


def _loader(data: Any, sampler: Any, **settings: Any) -> Any:
    """A plain DataLoader; an exception where the script's is none that --batch applies to."""
    return torch.utils.data.DataLoader(data, sampler.batch_size, **settings)


@contextmanager
def noted(note: Callable[[Fed], None]) -> Iterator[None]:
    """Note the batches of all DataLoaders in the block."""
    kind = torch.utils.data.dataloader._BaseDataLoaderIter
    following = kind.__next__

    def follow(self: Any) -> Any:
        batch, start = following(self), getattr(self, "_worker_init_fn", None)
        settings = {"collate_fn": self._collate_fn, "worker_init_fn": start}
        note(Fed(batch, partial(_loader, self._dataset, self._index_sampler, **settings)))
        return batch

    kind.__next__ = follow
    try:
        yield
    finally:
        kind.__next__ = following


@dataclass(frozen=True)
class Feed:
    """Puts the tensors of a batch in the places of those in an example."""

    example: Example
    # Path in a batch, and whether the script leaves its shape, by path in the example.
    places: dict[str, tuple[str, bool]]
    paths: frozenset[str]  # all paths in a batch

    @property
    def is_whole(self) -> bool:
        """Whether all tensors of the example are those of a batch, in their own shapes."""
        found = map(self.places.get, self.example.tensors())
        return all(place is not None and place[1] for place in found)

    def __call__(self, batch: Any) -> Example:
        own, found = self.example.tensors(), Example((batch,), {}).tensors()
        if found.keys() != self.paths:
            raise ValueError(f"a batch with {len(found)} tensors, not {len(self.paths)}")
        new = {
            id(own[to]): _like(found[path], own[to], is_shaped=is_shaped)
            for to, (path, is_shaped) in self.places.items()
        }
        return self.example.mapped(lambda tensor: new.get(id(tensor), tensor))


def feed_of(batch: Any, inputs: Example, example: Example) -> Feed:
    """The way from a batch to an example, which holds the inputs and what the loss takes;
    ValueError if the example does not come from the batch."""
    found = Example((batch,), {}).tensors()
    places = {
        to: (path, tensor.shape == own.shape)
        for to, own in example.tensors().items()
        for path, tensor in reversed(found.items())  # the first one counts
        if tensor.numel() == own.numel() and torch.equal(_like(tensor, own), own)
    }
    if not inputs.tensors().keys() & places:
        raise ValueError("another batch, or one that has changed on its way")
    return Feed(example, places, frozenset(found))


def _like(tensor: Any, own: Any, *, is_shaped: bool = False) -> Any:
    """The tensor with the type of `own` and, unless it `is_shaped`, the same axes but for the
    first."""
    shaped = tensor if is_shaped or not own.dim() else tensor.reshape(-1, *own.shape[1:])
    return shaped.to(own.dtype)
