"""The DataLoader of a script, found by the batches that its module gets."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from own_training import Numbers, code_in
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

from workloads.own import script, training
from workloads.own.calls import Run
from workloads.own.subject import Subject
from workloads.own.training_parts import TrainingParts


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
    assert script.hand_over(script.choose(ran), ran, code) is None
    return Subject(code, *script.received(code))


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
    monkeypatch.setattr(script, "MOST_DATA", 100)
    one = handed(tmp_path, nn.Linear(3, 2), DataLoader(Numbers(), 4), by_position)
    assert training.examine(one.code, one)["data"] is None
