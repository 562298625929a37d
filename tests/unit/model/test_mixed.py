"""The lab: the nodes that stay in FP32, and the file that is written for the user."""

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import onnx
import pytest
from checking import fails_with
from lab_models import Graph, convolutional, error_of, folder_of, perceptron

from workbench.contract import WorkloadError
from workbench.worker.recipe import Recipe
from workloads.lab import agreement, mixed, products, samples, save as saving
from workloads.lab.child import Lab

ROWS = (4, 32)
STATIC = Recipe("int8", "static", "products")
LONG_S = 60.0


@pytest.fixture(autouse=True)
def _unprofiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs by arithmetic, which does not vary as seconds do."""
    costs = mixed._costs
    monkeypatch.setattr(
        mixed, "_costs", lambda found: costs([replace(each, seconds=0.0) for each in found])
    )


def uneven(hostile: int = 1) -> Any:
    """A chain of products; in those numbered from 1 to `hostile`, one large column of the input
    costs the others their precision."""
    graph = Graph()
    x = "x"
    for number in range(4):
        if 1 <= number <= hostile:
            large, small = np.ones((2, 32), np.float32)
            large[0], small[0] = 300.0, 1 / 300.0
            x = graph.add("Mul", x, graph.constant(large))
            weight = graph.random.standard_normal((32, 32)).astype(np.float32) / 5
            weight[0] = 0
            x = graph.add("MatMul", x, graph.constant(weight))
        else:
            x = graph.add("MatMul", x, graph.weight(32, 32))
    return graph.model(("batch", 32), x)


def prepared(model: Any, folder: Path, shape: tuple[int, ...] = ROWS) -> Path:
    file = folder_of(model, folder, shape)
    Lab().prepare(str(file), str(folder))
    return file


def search(folder: Path, limit: float, seconds: float = LONG_S, **more: Any) -> dict[str, Any]:
    asked = {"recipe": asdict(STATIC), "metric": "relative_error", **more}
    model = str(folder / "model.onnx")
    return Lab().mixed(model, str(folder), limit=limit, seconds=seconds, **asked)


def test_only_the_node_that_spoils_the_result_stays_in_fp32(tmp_path: Path) -> None:
    prepared(uneven(), tmp_path)
    full = Lab().build("", str(tmp_path), asdict(STATIC))
    hostile = products.kept(tmp_path)[1].name
    assert error_of(full["file"], tmp_path) > 0.2
    mix = search(tmp_path, 0.05)
    assert list(mix["recipe"]["excluded"]) == [hostile]
    assert mix["coverage"] == pytest.approx(0.75)
    assert Path(mix["file"]).name == "int8-static-u8s8-products-mixed.onnx"
    assert mix["error"] == pytest.approx(error_of(mix["file"], tmp_path))
    assert mix["error"] <= mixed.MARGIN * 0.05


def test_a_mix_leaves_something_in_fp32_at_any_limit(tmp_path: Path) -> None:
    """The unmixed variant has raced already, under the same name."""
    prepared(uneven(), tmp_path)
    mix = search(tmp_path, 9.0)
    assert len(mix["recipe"]["excluded"]) == 1
    assert Path(mix["file"]).name == "int8-static-u8s8-products-mixed.onnx"


@pytest.mark.parametrize(("limit", "is_bounded"), [(0.5, True), (0.01, False)])
def test_a_mix_is_bounded_where_its_inputs_are_enough_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: float, is_bounded: bool
) -> None:
    same = lambda model, *_: model.SerializeToString()  # noqa: E731
    monkeypatch.setattr("workloads.lab.quantise.static", same)
    file = folder_of(uneven(), tmp_path, ROWS, count=70)
    Lab().prepare(str(file), str(tmp_path))
    (tmp_path / samples.CHECK).touch()
    found = mixed._Search(tmp_path, STATIC, "disagreement", limit, LONG_S)
    error = found._error(STATIC)
    assert error == (pytest.approx(1 - 0.05 ** (1 / 64)) if is_bounded else 0.0)


def test_a_limit_that_no_mix_keeps_is_an_error(tmp_path: Path) -> None:
    prepared(uneven(), tmp_path)
    with fails_with("no_mix"):
        search(tmp_path, 1e-6)


def test_no_time_is_no_mix(tmp_path: Path) -> None:
    prepared(uneven(), tmp_path)
    with fails_with("no_mix", "time"):
        search(tmp_path, 0.05, seconds=0.0)


def test_a_mix_found_before_the_time_ends_is_kept(tmp_path, monkeypatch) -> None:
    prepared(uneven(2), tmp_path)
    monkeypatch.setattr(mixed._Search, "_readmit", Mock(side_effect=TimeoutError))
    assert search(tmp_path, 0.05)["error"] <= 0.05


def test_each_product_has_seconds_of_its_own(tmp_path, monkeypatch) -> None:
    monkeypatch.undo()
    prepared(convolutional(), tmp_path, (2, 3, 16, 16))
    found = products.kept(tmp_path)
    whole = sum(product.seconds for product in found)
    assert 0 < whole < 1
    assert mixed._costs(found) == {p.name: pytest.approx(p.seconds / whole) for p in found}


def test_costs_follow_the_work_where_seconds_are_unknown(tmp_path: Path) -> None:
    prepared(uneven(), tmp_path)
    found = products.kept(tmp_path)
    assert mixed._costs(found) == {product.name: 0.25 for product in found}


def test_the_expensive_one_of_two_like_errors_is_quantised_again(tmp_path, monkeypatch) -> None:
    prepared(uneven(), tmp_path)
    first, _, third, last = (product.name for product in products.kept(tmp_path))
    costs = {product.name: 1 / 103 for product in products.kept(tmp_path)} | {last: 100 / 103}
    monkeypatch.setattr(mixed, "_costs", lambda _: costs)
    mix = search(tmp_path, 0.015)
    assert last not in mix["recipe"]["excluded"]
    assert {first, third} & set(mix["recipe"]["excluded"])


def test_units_are_products_with_what_they_absorb(tmp_path: Path) -> None:
    prepared(convolutional(), tmp_path, (2, 3, 16, 16))
    model = onnx.load(str(tmp_path / "prepared.onnx"))
    for scope, counts in (("products", [2, 2, 1]), ("all", [2, 2, 2, 1])):
        found = mixed.units(model, products.kept(tmp_path), Recipe("int8", "static", scope))
        assert [len(unit.names) for unit in found] == counts
        assert sum(unit.cost for unit in found) == pytest.approx(1.0)


def test_a_single_product_leaves_nothing_to_choose(tmp_path: Path) -> None:
    graph = Graph()
    prepared(graph.model(("batch", 32), graph.add("MatMul", "x", graph.weight(32, 8))), tmp_path)
    with pytest.raises(WorkloadError, match="only one part"):
        search(tmp_path, 0.05)


def test_errors_of_the_tools_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared(uneven(), tmp_path)
    fail = Mock(side_effect=ValueError("no scale\nfor a tensor"))
    monkeypatch.setattr("workloads.lab.quantise.static", fail)
    with fails_with("not_quantised", r"no scale for a tensor$"):
        search(tmp_path, 0.05)


def saved(folder: Path, destination: Path, variant: str = "int8-static-u8s8-products.onnx") -> Any:
    Lab().build("", str(folder), asdict(STATIC))
    model, source = str(folder / "model.onnx"), str(folder / variant)
    hidden = str(folder / ".hidden")
    return Lab().save(model, str(folder), source, destination=str(destination), hidden=hidden)


def test_a_variant_is_written_whole_and_runs_as_before(tmp_path: Path, monkeypatch) -> None:
    prepared(perceptron(), tmp_path, (4, 16))
    (tmp_path / "out").mkdir()
    destination = tmp_path / "out" / "small.onnx"
    meanwhile = []  # the files in the folder while the new one is written
    monkeypatch.setattr(os, "fsync", lambda _: meanwhile.extend(destination.parent.iterdir()))
    written = saved(tmp_path, destination)
    assert meanwhile == []
    assert written == {"size_bytes": destination.stat().st_size, "difference": 0.0}
    assert [file.name for file in destination.parent.iterdir()] == ["small.onnx"]


def test_a_file_is_compared_on_few_inputs(tmp_path: Path, monkeypatch) -> None:
    asked = []
    answers = agreement.answers
    monkeypatch.setattr(
        agreement, "answers", lambda *given: asked.append(len(given[1])) or answers(*given)
    )
    folder_of(perceptron(), tmp_path, (4, 16), count=64)
    Lab().save(
        str(tmp_path / "model.onnx"),
        str(tmp_path),
        str(tmp_path / "model.onnx"),
        destination=str(tmp_path / "copy"),
        hidden=str(tmp_path / ".hidden"),
    )
    assert asked[-2:] == [2, 2]


def test_a_model_that_no_file_holds_is_not_loaded(tmp_path: Path, monkeypatch) -> None:
    file = prepared(perceptron(), tmp_path, (4, 16))
    onnx.save(perceptron(), str(file), save_as_external_data=True, size_threshold=0)
    with pytest.raises(WorkloadError, match="do not fit into one file") as refused:
        monkeypatch.setattr(saving, "LARGEST_MODEL", 2000)
        saved(tmp_path, tmp_path / "whole.onnx", variant=str(file))
    assert refused.value.hint == "copy it together with its external data"
    saved(tmp_path, tmp_path / "small.onnx")  # a variant of it does fit


def test_the_model_itself_is_never_written_over(tmp_path: Path) -> None:
    file = prepared(perceptron(), tmp_path, (4, 16))
    before = file.read_bytes()
    link = tmp_path / "link.onnx"
    link.symlink_to(file)
    for destination in (file, link):
        with pytest.raises(WorkloadError, match="is the model itself"):
            saved(tmp_path, destination)
    assert file.read_bytes() == before


def test_a_destination_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    prepared(perceptron(), tmp_path, (4, 16))
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "planted").symlink_to(tmp_path / "elsewhere")
    for destination, reason in {
        tmp_path: "it is a folder",
        tmp_path / "nowhere" / "small.onnx": "No such file or directory",
        tmp_path / "fifo": "it is not a regular file",
        tmp_path / "planted": "it has become a link since the run began",
    }.items():
        with pytest.raises(WorkloadError, match=f"cannot write {destination}: {reason}"):
            saved(tmp_path, destination)
    assert (tmp_path / "fifo").is_fifo()
    assert not (tmp_path / "elsewhere").exists()


def test_the_weights_of_the_model_are_never_written_over(tmp_path: Path) -> None:
    file = prepared(perceptron(), tmp_path, (4, 16))
    onnx.save(
        perceptron(), str(file), save_as_external_data=True, location="weights", size_threshold=0
    )
    with pytest.raises(WorkloadError, match="or its weights"):
        saved(tmp_path, tmp_path / "weights")


def test_what_was_there_stays_where_writing_fails(tmp_path, monkeypatch) -> None:
    prepared(perceptron(), tmp_path, (4, 16))
    (tmp_path / "out").mkdir()
    destination = tmp_path / "out" / "small.onnx"
    destination.write_bytes(b"before")
    monkeypatch.setattr("os.fsync", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(WorkloadError, match="No space left"):
        saved(tmp_path, destination)
    assert [file.read_bytes() for file in destination.parent.iterdir()] == [b"before"]


def test_external_weights_are_embedded_where_saved(tmp_path: Path) -> None:
    file = prepared(perceptron(), tmp_path, (4, 16))
    onnx.save(perceptron(), str(file), save_as_external_data=True, size_threshold=0)
    (tmp_path / "out").mkdir()
    written = saved(tmp_path, tmp_path / "out" / "whole.onnx", variant=str(file))
    assert written["difference"] == 0.0
    assert len(list((tmp_path / "out").iterdir())) == 1
