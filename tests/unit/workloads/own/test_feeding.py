"""The DataLoader of a script, found by the batches that its module gets."""

import multiprocessing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from own_training import Numbers, code_in
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

from workloads.own import handing_over, script, training
from workloads.own.calls import Run
from workloads.own.feeding import feed_of
from workloads.own.subject import Subject
from workloads.own.training_parts import TrainingParts
from workloads.own.tree import Example


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, values: Any, labels: Any = None) -> Any:
        found = self.inner(values)
        return {"loss": functional.cross_entropy(found, labels), "logits": found}


def as_dictionary(rows: Any) -> Any:
    values, labels = zip(*rows, strict=True)
    return {"labels": torch.tensor(labels), "values": torch.stack(values)}


def handed(folder: Path, net: Any, loader: Any, step: Any) -> Subject:
    """The subject of a script that trains a module on batches of a loader."""
    ran = Run(follows=True)
    with ran.watched(60.0):
        net(torch.zeros(4, 3), torch.zeros(4).long()) if isinstance(net, Named) else None
        for batch in loader:
            step(net, batch).backward()
    code = replace(code_in(folder), target="train.py")
    assert handing_over.hand_over(script.choose(ran), ran, code) is None
    return Subject(code, *handing_over.received(code))


def by_position(net: Any, batch: Any) -> Any:
    values, target = batch
    return functional.cross_entropy(net(values), target)


def reshaped(net: Any, batch: Any) -> Any:
    values, target = batch
    return functional.mse_loss(net(values.view(-1, 1, 3)), target.view(-1, 1, 1).float())


def by_name(net: Any, batch: Any) -> Any:
    return net(**batch)["loss"]


@pytest.mark.parametrize(
    ("net", "collate", "step", "shape"),
    [
        (nn.Linear(3, 2), None, by_position, [6]),
        (nn.Linear(3, 1), None, reshaped, [6, 1, 1]),
        (Named(), as_dictionary, by_name, None),
    ],
)
def test_batches_of_a_script_are_those_of_its_loader_in_any_size(
    net: Any, collate: Any, step: Any, shape: Any, tmp_path: Path
) -> None:
    one = handed(tmp_path, net, DataLoader(Numbers(), 4, collate_fn=collate), step)
    facts = training.examine(one.code, one)
    assert (facts["data"], facts["batch"], facts["of_one_size"]) == ("dataset", 4, False)
    assert not any("DataLoader" in note for note in facts["notes"])
    parts = TrainingParts(one)
    first, second = (parts.sample(6, seed) for seed in (1, 2))
    inputs, others = (next(iter(parts.arguments(x).tensors().values())) for x in (first, second))
    assert len(inputs) == 6 and not torch.equal(inputs, others)
    assert shape is None or list(first.args[-1][0].shape) == shape
    assert parts.loss_on(one.copy(), first).isfinite()


def test_loader_processes_know_the_classes_of_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = handed(tmp_path, nn.Linear(3, 2), DataLoader(Numbers(), 4), by_position)
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda **_: "spawn")
    loader = TrainingParts(one)._loader(4, 2, False)
    assert loader.multiprocessing_context.get_start_method() == "fork"


def read_ahead(loader: Any, count: int) -> Any:
    waiting = []
    for batch in loader:
        waiting.append(batch)
        if len(waiting) > count:
            yield waiting.pop(0)
    yield from waiting


@pytest.mark.parametrize("count", [1, 3])
def test_a_batch_that_is_read_in_advance_does_not_hide_an_earlier_one(
    count: int, tmp_path: Path
) -> None:
    loader = DataLoader(Numbers(), 2)
    one = handed(tmp_path, nn.Linear(3, 2), read_ahead(loader, count), by_position)
    assert training.examine(one.code, one)["data"] == "dataset"


def turned(net: Any, batch: Any) -> Any:
    return net(batch[0] * 2).sum()


def test_a_batch_that_changes_on_its_way_is_not_taken_for_the_inputs(tmp_path: Path) -> None:
    one = handed(tmp_path, nn.Linear(3, 2), DataLoader(Numbers(), 4), turned)
    facts = training.examine(one.code, one)
    assert facts["data"] is None
    assert any("no DataLoader that feeds it directly" in note for note in facts["notes"])


def test_data_that_no_worker_should_read_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handing_over, "MOST_DATA", 100)
    one = handed(tmp_path, nn.Linear(3, 2), DataLoader(Numbers(), 4), by_position)
    facts = training.examine(one.code, one)
    assert facts["data"] is None
    assert any("cannot be handed over (OSError: its data are" in note for note in facts["notes"])


class Texts(Dataset[Any]):
    """Sequences (time, 3) of five lengths."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return torch.ones(3 + index % 5, 3), index % 2


def padded(rows: Any) -> Any:
    values, labels = zip(*rows, strict=True)
    return pad_sequence(values, batch_first=True), torch.tensor(labels)


class Mean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, values: Any, mask: Any = None) -> Any:
        return self.inner(values if mask is None else values * mask[..., None]).mean(1)


def masked(net: Any, batch: Any) -> Any:
    values, target = batch
    return functional.cross_entropy(net(values, values.any(-1)), target)


def against(net: Any, batch: Any) -> Any:
    values, _ = batch
    return functional.mse_loss(net(values).sum(1), torch.ones(len(values)))


def test_padded_batches_of_any_length_are_given_as_they_are(tmp_path: Path) -> None:
    loader = DataLoader(Texts(), 2, collate_fn=padded)
    one = handed(tmp_path, Mean(), loader, by_position)
    assert training.examine(one.code, one)["data"] == "dataset"
    parts = TrainingParts(one)
    shapes = {parts.sample(None, seed).args[0].shape for seed in range(20)}
    assert len(shapes) > 2 and {(shape[0], shape[2]) for shape in shapes} == {(2, 3)}


@pytest.mark.parametrize(("step", "batch"), [(masked, None), (against, 6)])
def test_batches_that_do_not_fit_what_the_script_makes_are_left_out(
    step: Any, batch: int | None, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    one = handed(tmp_path, Mean(), DataLoader(Texts(), 4, collate_fn=padded), step)
    one.code = replace(one.code, batch=batch)
    facts = training.examine(one.code, one)
    assert facts["data"] is None and not (tmp_path / handing_over.DATA).exists()
    (note,) = (note for note in facts["notes"] if "same inputs" in note)
    assert note.startswith("other batches of its DataLoader do not fit (RuntimeError: The size of")
    parts = TrainingParts(one)
    assert parts.loss_on(one.copy(), parts.sample(batch, 0)).isfinite()


def test_a_list_of_another_number_of_images_is_no_batch_of_another_size() -> None:
    images = [torch.ones(3, 4, 4 + size) for size in range(3)]
    inputs = Example((images,), {})
    feed = feed_of(images, inputs, inputs)
    given = [image + 1 for image in reversed(images)]
    assert all(map(torch.equal, feed(given).args[0], given))
    with pytest.raises(ValueError, match="a batch with 4 tensors, not 3"):
        feed([*given, given[0]])
