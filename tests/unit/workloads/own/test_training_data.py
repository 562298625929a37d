"""The data of a training: loaders, data sets and streams next to the module."""

import multiprocessing
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from checking import fails_with
from own_training import BATCH, Numbers, examined, supervised, task_of
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset

from workloads.own.training_parts import TrainingParts


def test_the_wait_for_data_is_counted(tmp_path: Path) -> None:
    reads: list[int] = []
    one = supervised(dataset=lambda: Numbers(lambda: reads.append(1)))
    task = task_of(one, tmp_path, batches=3)
    task.step()
    task.step()
    assert task.together == 3, "steps in a sample"
    assert len(reads) == 2 * BATCH
    assert [len(marks) for marks in task.marks] == [3, 3]
    assert 0 < task.metrics()["waiting_fraction"] <= 1
    task.marks = [[0.0, 3.0, 4.0, 5.0, 8.0]]  # works from 3 to 4 and from 5 to 8
    assert task.metrics() == {"waiting_fraction": 4 / 8}
    task.activate()
    assert task.metrics() == {}
    assert task.waits


def test_loader_processes_end_with_their_task(tmp_path: Path) -> None:
    task = task_of(supervised(), tmp_path, workers=2)
    task.step()
    assert len(multiprocessing.active_children()) == 2
    task.close()
    assert multiprocessing.active_children() == []


def test_the_users_loader_gets_its_settings_and_goes_on_for_ever(tmp_path: Path) -> None:
    asked = []

    def loader(batch_size: int, num_workers: int, pin_memory: bool) -> Any:
        asked.append((batch_size, num_workers, pin_memory))
        return [(torch.ones(size, 3), torch.zeros(size).long()) for size in (4, 4, 1)]

    task = task_of(supervised(loader=loader, dataset=None), tmp_path, workers=0)
    assert [len(next(task.batches)[0]) for _ in range(5)] == [4] * 5  # never the last, small one
    assert asked == [(BATCH, 0, False)]


def test_a_loader_that_is_used_up_is_asked_for_the_next_epoch(tmp_path: Path) -> None:
    def loader(batch_size: int, **_: Any) -> Iterator[Any]:
        yield from [(torch.ones(batch_size, 3), torch.zeros(batch_size).long())] * 2

    task = task_of(supervised(loader=loader, dataset=None), tmp_path)
    assert [len(next(task.batches)[0]) for _ in range(5)] == [BATCH] * 5


def test_a_first_axis_that_is_no_batch_drops_no_data(tmp_path: Path) -> None:
    lengths = iter([5, 3, 7, 4])

    def by_time(samples: list[Any]) -> Any:
        return torch.ones(next(lengths), len(samples), 3), torch.zeros(len(samples)).long()

    task = task_of(supervised(collate=by_time), tmp_path)
    assert [len(next(task.batches)[0]) for _ in range(4)] == [5, 3, 7, 4]


class Ten(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(Numbers(size=10))


def test_the_last_batch_of_a_stream_is_whole(tmp_path: Path) -> None:
    task = task_of(supervised(dataset=Ten), tmp_path)
    assert [len(next(task.batches)[0]) for _ in range(5)] == [4] * 5


def test_a_stream_with_less_than_a_batch_has_a_remedy(tmp_path: Path) -> None:
    with fails_with("bad_input", "yields no batch of 32", hint="smaller --batch"):
        examined(supervised(dataset=Ten), tmp_path)


class Sampling(DataLoader[Any]):
    """Samples in its processes and reads the rows here, as NeighborLoader of PyTorch Geometric."""

    def _get_iterator(self) -> Any:
        return (
            (torch.ones(len(rows), 3), torch.tensor(rows) % 2) for rows in super()._get_iterator()
        )

    def __call__(self, rows: list[int]) -> Any: ...


@pytest.mark.parametrize(
    ("held", "size"),
    [
        (DataLoader(Numbers(), batch_sampler=BatchSampler(range(8), 3, drop_last=True)), 3),
        (DataLoader([(torch.ones(2, 3), torch.tensor([0, 1]))] * 5, batch_size=None), 2),
        (Sampling(range(8), BATCH, collate_fn=list), BATCH),
    ],
)
def test_a_loader_that_makes_its_own_batches_is_used(held: Any, size: int, tmp_path: Path) -> None:
    one = supervised(loader=held, dataset=getattr(held, "dataset", None))
    one.part = lambda name: next(filter(callable, one.found(name)), None)
    facts = examined(one, tmp_path)
    assert (facts["data"], facts["batch"], facts["of_one_size"]) == ("loader", size, True)
    loader = TrainingParts(one).loader(batch_size=64, num_workers=1, pin_memory=False)
    assert loader.num_workers == 1 and len(next(iter(loader))[0]) == size
    loader._iterator = None


def test_a_list_of_batches_needs_no_processes(tmp_path: Path) -> None:
    batch = np.ones((2, 3), np.float32), torch.tensor([0, 1])
    one = supervised(loader=[batch] * 5, dataset=None)
    one.part = lambda name: next(filter(callable, one.found(name)), None)
    facts = examined(one, tmp_path)
    assert (facts["data"], facts["batch"], facts["of_one_size"]) == (None, 2, True)
    assert not any("same inputs" in note for note in facts["notes"])


def test_data_that_cannot_be_read_are_named() -> None:
    one = supervised(dataset=None)
    one.part = lambda name: None  # nothing there can be called
    one.namespace = SimpleNamespace(dataset={"train": 1}, loader=iter([1]))
    with fails_with("bad_input", "are a list_iterator, neither a Data", hint="define loader"):
        TrainingParts(one)


def broken() -> None:
    raise OSError("picture 7 is cut")


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_a_dataset_is_named_wherever_it_happens(workers: int, tmp_path: Path) -> None:
    one = supervised(dataset=lambda: Numbers(broken))
    task = task_of(one, tmp_path, active=False, workers=workers)
    with fails_with("user_code", r"dataset of net:build.* OSError: picture 7"):
        task.activate()
        task.step()
    task.close()
    assert multiprocessing.active_children() == []


def test_a_loader_process_that_dies_is_one_line(tmp_path: Path) -> None:
    one = supervised(dataset=lambda: Numbers(partial(os._exit, 3)))
    task = task_of(one, tmp_path, active=False, workers=1)
    with fails_with("user_code", r"dataset of net:build.* exited unexpectedly"):
        task.activate()
    task.close()
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("dataset", Numbers()),
        ("loader", DataLoader(Numbers(), 2)),
        ("dataset", Ten()),
    ],
    ids=["dataset", "loader", "stream"],
)
def test_data_may_be_an_object_instead_of_a_function(name: str, held: Any) -> None:
    one = supervised(dataset=None)
    one.part = lambda name: None  # nothing there can be called
    one.namespace = SimpleNamespace(**{name: held})
    parts = TrainingParts(one)
    values, kinds = parts.sample(BATCH, 0)
    assert (parts.data, values.shape, kinds.shape) == ("dataset", (BATCH, 3), (BATCH,))


class Opened(Dataset[float]):
    """Knows whether the process that reads it was prepared."""

    was = False

    def __len__(self) -> int:
        return BATCH

    def __getitem__(self, place: int) -> float:
        return float(self.was)


def _open(_: int) -> None:
    Opened.was = True


@pytest.mark.parametrize(
    "held",
    [
        DataLoader(Opened(), BATCH, worker_init_fn=_open),
        DataLoader(Opened(), batch_sampler=[range(BATCH)], worker_init_fn=_open),
    ],
    ids=["batch", "sampler"],
)
def test_a_loader_keeps_the_function_that_prepares_its_processes(held: Any) -> None:
    one = supervised(dataset=None)
    one.part = lambda name: None  # nothing there can be called
    one.namespace = SimpleNamespace(loader=held)
    batches = TrainingParts(one).batches(BATCH, 1, False, 0)
    assert next(batches).tolist() == [1.0] * BATCH
    batches.close()


@pytest.mark.parametrize(
    ("loader", "size"),
    [
        (lambda batch_size: DataLoader(Numbers(), batch_size), 32),
        (lambda: DataLoader(Numbers(), 2), 2),
    ],
    ids=["its batch", "nothing"],
)
def test_a_loader_that_takes_less_gives_its_data_set(loader: Any, size: int) -> None:
    parts = TrainingParts(supervised(dataset=None, loader=loader))
    assert (parts.data, parts.batch, parts.resizable) == ("dataset", size, True)
    assert parts.sample(BATCH, 0)[0].shape == (BATCH, 3)


def test_a_loader_that_was_read_before_lends_no_processes_to_its_copies() -> None:
    held = DataLoader(Numbers(), batch_size=None, num_workers=1, persistent_workers=True)
    next(iter(held))
    one = supervised(dataset=None)
    one.part, one.namespace = lambda name: None, SimpleNamespace(loader=held)
    parts = TrainingParts(one)
    made = parts.loader(num_workers=2, pin_memory=False)
    assert (made._iterator, made.num_workers) == (None, 2)
    assert held._iterator is not None
