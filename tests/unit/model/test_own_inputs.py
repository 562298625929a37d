"""A user's own inputs: which calibrate, choose or check, and what is refused."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_models as made
import pytest
from lab_case import Case, run_shapes
from onnx import helper

from workloads.lab import bounds, inputs, inspection, samples, values
from workloads.lab.load import Original
from workloads.lab.shapes import Input


def test_rows_are_divided_into_batches_and_halves(case: Case) -> None:
    rows = np.arange(60, dtype=np.float32).reshape(10, 6)
    facts = case.inspect(made.mlp(), inputs=case.file(x=rows))
    assert (facts["samples"], facts["calibration_samples"]) == (5, 5)
    assert facts["inputs_from"] == "data.npz"
    assert facts["inputs"][0]["values"] == "from data.npz"
    both = [case.kept(name) for name in (samples.CALIBRATION, samples.INPUTS)]
    assert {float(x[0, 0]) for kept in both for (x,) in kept} == set(rows[:, 0])
    assert facts["check_samples"] == 0
    assert not (case.folder / samples.CHECK).exists()
    facts = case.inspect(made.mlp(), inputs=case.file(x=rows), batch=4)
    assert (facts["samples"], facts["batch"], facts["same_samples"]) == (2, 4, True)


def test_an_axis_more_counts_samples_and_fixed_ones_are_shared(case: Case) -> None:
    x = np.ones((6, 2, 4), np.float32)
    facts = case.inspect(made.branching(), inputs=case.file(x=x, rate=np.array(16000)))
    assert facts["samples"] == 3
    assert run_shapes(facts) == {"x": [2, 4], "rate": []}
    assert all(sample[1] == 16000 for sample in case.kept(samples.INPUTS))


def test_shapes_given_hold_for_a_file_too(case: Case) -> None:
    rows = np.ones((12, 6), np.float32)
    facts = case.inspect(made.mlp(), inputs=case.file(x=rows), shapes={"x": [3, 6]})
    assert (facts["samples"], facts["batch"], run_shapes(facts)) == (2, 3, {"x": [3, 6]})
    given_axes = made.one_node(shape=["n", "k"])
    error = case.refusal(given_axes, inputs=case.file(x=rows), shapes={"x": [3, 5]})
    assert "x has shape [12, 6]" in str(error)


def test_a_sequence_before_the_batch_is_not_divided(case: Case) -> None:
    facts = case.inspect(made.lstm(), inputs=case.file(x=np.ones((9, 2, 3), np.float32)))
    assert (facts["samples"], facts["batch"], run_shapes(facts)) == (1, 2, {"x": [9, 2, 3]})
    error = case.refusal(made.mlp(), inputs=case.file(x=np.ones((5, 2, 6))), batch=4)
    assert "samples of batch 2, --batch is 4" in str(error)


def rows(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.float32)[:, None] * np.ones((1, 6), np.float32)


def drawn(case: Case, name: str) -> list[int]:
    return [int(x[0, 0]) for (x,) in case.kept(name)]


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a run may take so long that fewer inputs are kept."""
    monkeypatch.setattr(inspection, "QUICK_S", 1e6)
    monkeypatch.setattr(inspection, "GIVEN_S", 1e6)


@pytest.mark.usefixtures("unhurried")
def test_at_most_so_many_samples_are_taken_at_random(case: Case) -> None:
    facts = case.inspect(made.mlp(), inputs=case.file(x=rows(1000)))
    assert facts["samples"] == facts["calibration_samples"] == inputs.AT_MOST
    kept = drawn(case, samples.INPUTS)
    assert min(kept) < 100 and max(kept) > 900  # files are often sorted by class


PARTS = (samples.CALIBRATION, samples.INPUTS, samples.CHECK)


@pytest.mark.usefixtures("unhurried")
def test_many_inputs_calibrate_or_choose_or_check(case: Case) -> None:
    data = case.file(x=rows(1000))
    facts = case.inspect(made.mlp(), inputs=data, limit=0.02)
    parts = [drawn(case, name) for name in PARTS]
    assert [len(part) for part in parts] == [240, 256, 400]
    counts = [facts[f"{part}samples"] for part in ("calibration_", "", "check_")]
    assert (counts, facts["folds"]) == ([240, 256, 400], 0)
    assert len(set().union(*parts)) == 896
    case.inspect(made.mlp(), inputs=data, limit=0.02)
    assert [drawn(case, name) for name in PARTS] == parts
    case.inspect(made.mlp(), inputs=data, limit=0.02, seed=1)
    assert [drawn(case, name) for name in PARTS] != parts
    assert len(case.kept(samples.CHECK_REFERENCE)) == 400


@pytest.mark.parametrize(
    ("count", "limit"), [(1000, 0.01), (920, 0.01), (460, 0.02), (2500, 0.004)]
)
def test_enough_inputs_choose_to_promise_a_small_disagreement(case: Case, count, limit) -> None:
    data = case.file(x=rows(count))
    facts = case.inspect(made.mlp(), inputs=data, limit=limit, metric="disagreement")
    for name, chance in ((samples.REFERENCE, "CHOOSE"), (samples.CHECK_REFERENCE, "CHECK")):
        right = case.kept(name)
        bound = bounds.upper(right, right, "disagreement", getattr(bounds, chance))
        assert bound <= limit, name
    assert facts["calibration_samples"] <= inputs.AT_MOST


@pytest.mark.parametrize("count", [100, 104, 108, 109])
def test_enough_inputs_choose_where_they_do_not_calibrate(case: Case, count, monkeypatch) -> None:
    monkeypatch.setattr(inspection, "FOLDABLE", 0)
    facts = case.inspect(made.mlp(), inputs=case.file(x=rows(count)), limit=0.02)
    assert facts["folds"] == 0 and facts["needed_inputs"] == 100
    assert facts["samples"] >= bounds.FEWEST <= facts["check_samples"]
    assert facts["calibration_samples"] >= 20


def test_few_inputs_calibrate_and_choose_while_others_check(case: Case) -> None:
    facts = case.inspect(made.mlp(), inputs=case.file(x=rows(100)), limit=0.02)
    calibration, choose, check = (drawn(case, name) for name in PARTS)
    assert calibration == choose
    assert sorted(choose + check) == list(range(100))
    assert (facts["check_samples"], facts["folds"], facts["needed_inputs"]) == (40, 3, 100)
    assert not facts["same_samples"]


def test_inputs_that_calibrate_and_choose_are_the_same_where_a_bound_needs_many(
    case: Case, monkeypatch
) -> None:
    monkeypatch.setattr(inspection, "QUICK_S", 0.0)
    data = case.file(x=rows(200))
    facts = case.inspect(made.mlp(), inputs=data, limit=0.05, metric="disagreement")
    assert (facts["calibration_samples"], facts["samples"], facts["folds"]) == (72, 72, 3)


@pytest.mark.parametrize(
    ("count", "limit", "metric", "needed"),
    [
        (99, 0.02, "relative_error", 100),
        (900, 0.01, "disagreement", 920),
        (900, 0.0, "disagreement", None),
    ],
)
def test_with_too_few_inputs_nothing_is_kept_apart(case, count, limit, metric, needed) -> None:
    case.inspect(made.mlp(), inputs=case.file(x=rows(1000)), limit=0.02)
    facts = case.inspect(made.mlp(), inputs=case.file(x=rows(count)), limit=limit, metric=metric)
    assert (facts["check_samples"], facts["needed_inputs"]) == (0, needed)
    assert not (case.folder / samples.CHECK).exists()
    assert not (case.folder / samples.FOLDS).exists()


def test_a_slow_model_is_checked_on_as_many_inputs_as_a_bound_needs(case, monkeypatch) -> None:
    monkeypatch.setattr(inspection, "QUICK_S", 0.0)
    facts = case.inspect(made.mlp(), inputs=case.file(x=rows(100)), limit=0.02)
    assert facts["check_samples"] == 40
    monkeypatch.setattr(inspection, "GIVEN_S", 0.0)
    facts = case.inspect(made.mlp(), inputs=case.file(x=rows(100)), limit=0.02)
    assert (facts["check_samples"], facts["needed_inputs"]) == (0, None)
    assert facts["no_promise"] == "the model is too slow to be run on 40 held-out inputs in 0 s"


class SlowModel:
    """A clock that each run of the model moves on."""

    def __init__(self, monkeypatch, run_s: float) -> None:
        self.at_s = 0.0
        run = Original.run

        def slow(original: Original, feeds: Any) -> Any:
            self.at_s += run_s
            return run(original, feeds)

        clock = SimpleNamespace(perf_counter=lambda: self.at_s, monotonic=lambda: self.at_s)
        monkeypatch.setattr(Original, "run", slow)
        monkeypatch.setattr(inspection, "time", clock)


@pytest.mark.parametrize("foldable", [0, 2**20])
@pytest.mark.parametrize("run_s", [0.03, 0.05, 0.07, 0.15, 0.25, 0.6, 1.5])
def test_a_slow_model_is_inspected_within_its_time(case, monkeypatch, run_s, foldable) -> None:
    monkeypatch.setattr(inspection, "FOLDABLE", foldable)
    slow = SlowModel(monkeypatch, run_s)
    data = case.file(x=rows(200))
    facts = case.inspect(made.mlp(), inputs=data, limit=0.02, seconds=12.0)
    assert slow.at_s < 0.75 * 12
    parts = 5 if facts["folds"] else 1  # a build calibrates with them all, and then in folds
    assert facts["calibration_samples"] * run_s * parts < 10
    assert (facts["folds"] > 0) == (foldable > 0 and run_s < 1.5 / 40)
    assert (facts["check_samples"] > 0) == (run_s < 3 / 40)
    too_slow = "the model is too slow to be run on 40 held-out inputs in 3 s; raise --budget"
    assert facts["no_promise"] == (None if facts["check_samples"] else too_slow)


def test_a_reason_is_given_where_no_number_of_inputs_suffices(case: Case, monkeypatch) -> None:
    few = case.file(x=rows(30))
    facts = case.inspect(made.mlp(), inputs=few, limit=0.001, metric="disagreement")
    assert facts["needed_inputs"] is None
    assert (
        facts["no_promise"]
        == "it needs 3688 held-out inputs, and at most 1024 (384 MiB) can be held out"
    )
    monkeypatch.setattr(inspection, "CHECK_BYTES", 36 * 39)
    facts = case.inspect(made.mlp(), inputs=case.file(x=rows(200)), limit=0.02)
    assert (
        facts["no_promise"] == "it needs 40 held-out inputs, and at most 39 (0 MiB) can be held out"
    )
    assert (facts["check_samples"], facts["needed_inputs"]) == (0, None)


def test_as_many_pictures_of_a_usual_detector_fit_as_a_bound_needs() -> None:
    picture, boxes = 3 * 640 * 640, 84 * 8400
    assert bounds.FEWEST * 4 * (picture + boxes) <= inspection.CHECK_BYTES


def test_casts_that_keep_numbers_are_made(case: Case) -> None:
    case.inspect(made.mlp(), inputs=case.file(x=np.ones((4, 6))))
    assert case.kept(samples.INPUTS)[0][0].dtype == np.float32
    ids = np.ones((4, 5), np.int64)
    case.inspect(made.tokens(), inputs=case.file(ids=ids, attention_mask=ids))
    assert case.kept(samples.INPUTS)[0][0].dtype == np.int32


def cached() -> Any:
    """A decoder, which appends tokens to its cache."""
    node = helper.make_node("Concat", ["past", "ids"], ["y"], axis=1)
    axes = {"past": ["batch", "past"], "ids": ["batch", "sequence"]}
    ports = [made.port(name, made.INT64, each) for name, each in axes.items()]
    return made.model([node], ports, [made.port("y", made.INT64)])


def test_a_cache_may_be_empty(case: Case) -> None:
    facts = case.inspect(cached(), shapes={"past": [1, 0], "ids": [1, 5]})
    assert run_shapes(facts) == {"past": [1, 0], "ids": [1, 5]}
    file = case.file(past=np.ones((6, 0), np.int64), ids=np.ones((6, 5), np.int32))
    assert run_shapes(case.inspect(cached(), inputs=file))["past"] == [1, 0]


SINGLE = np.ones((4, 6), np.float32)


MISFITS: dict[str, tuple[dict[str, Any], str]] = {
    "names": ({"z": SINGLE}, "holds z; the model's inputs are x"),
    "more names": ({"x": SINGLE, "z": SINGLE}, "holds x, z; the model's inputs are x"),
    "type": ({"x": SINGLE.astype(np.uint8)}, "x holds uint8, the model takes float32"),
    "text": ({"x": np.array([["a"] * 6])}, "the model takes float32"),
    "rank": ({"x": np.ones(6, np.float32)}, "x has shape [6]"),
    "size": ({"x": np.ones((4, 7), np.float32)}, "x has shape [4, 7], the model takes x [n, 6]"),
    "more axes": ({"x": np.ones((2, 2, 7), np.float32)}, "x has shape [2, 2, 7]"),
    "empty": ({"x": np.ones((0, 6), np.float32)}, "x is empty"),
    "nan": ({"x": np.full((4, 6), np.nan)}, "NaN or infinity"),
    "overflow": ({"x": np.full((4, 6), 1e300)}, "NaN or infinity"),
    "objects": ({"x": np.array([{}, 1], object)}, "Python objects"),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_arrays_that_do_not_fit_are_refused(misfit: str, case: Case) -> None:
    arrays, message = MISFITS[misfit]
    error = case.refusal(made.mlp(), inputs=case.file(**arrays))
    assert error.code == "bad_input"
    assert message in str(error)


def test_counts_must_agree(case: Case) -> None:
    few, many = np.ones((4, 2, 4), np.float32), np.full(5, 16000)
    error = case.refusal(made.branching(), inputs=case.file(x=few, rate=many))
    assert "x 4, rate 5" in str(error)


def test_too_few_rows_for_a_batch(case: Case) -> None:
    error = case.refusal(made.mlp(), inputs=case.file(x=SINGLE), batch=8)
    assert "x has 4 rows, a batch has 8" in str(error)


def test_integers_that_do_not_fit_are_refused(case: Case) -> None:
    ids = np.full((4, 5), 2**40)
    error = case.refusal(made.tokens(), inputs=case.file(ids=ids, attention_mask=ids))
    assert "do not fit" in str(error)


def test_what_is_no_npz_is_refused(case: Case) -> None:
    path = case.folder / "data.npz"
    for content, message in (
        (None, "No such file"),
        (b"", "not an .npz"),
        (b"hello", "not an .npz"),
        (b"PK\x03\x04" + bytes(50), "cannot be read"),
    ):
        if content is not None:
            path.write_bytes(content)
        error = case.refusal(made.mlp(), inputs=str(path))
        assert error.code == "bad_input"
        assert message in str(error)
    np.save(case.folder / "data.npy", SINGLE)
    assert "not an .npz" in str(case.refusal(made.mlp(), inputs=str(case.folder / "data.npy")))
    assert "it is a folder" in str(case.refusal(made.mlp(), inputs=str(case.folder)))
    whole = Path(case.file(x=SINGLE)).read_bytes()
    path.write_bytes(whole[:-30])
    assert case.refusal(made.mlp(), inputs=str(path)).code == "bad_input"


def test_a_file_for_a_model_without_inputs_is_refused(case: Case) -> None:
    node = helper.make_node("Constant", [], ["y"], value=made.weight("w", 3))
    error = case.refusal(made.model([node], [], [made.port("y")]), inputs=case.file(x=SINGLE))
    assert "has no inputs" in str(error)


def test_bytes_take_every_value() -> None:
    ports = [Input("picture", "uint8", [None, 16, 16, 3])]
    maker = values.Maker(made.mlp(), ports)
    sample = maker.sample({"picture": (1, 16, 16, 3)}, np.random.default_rng(0))
    assert sample["picture"].max() > 200
    assert maker.origins["picture"] == "random bytes"


def test_inputs_and_answers_of_others_take_the_place_of_its_own(case: Case) -> None:
    given = case.folder / "b2"
    given.mkdir()
    rows, answers = np.full((2, 6), 0.5, np.float32), np.full((2, 3), 7.0)
    samples.write(given / samples.INPUTS, [[rows]])
    samples.write(given / samples.CALIBRATION, [[rows + 1], [rows + 2]])
    samples.write(given / samples.REFERENCE, [[answers]])
    facts = case.inspect(made.mlp(), given=str(given))
    assert (facts["batch"], facts["samples"], facts["same_samples"]) == (2, 1, False)
    assert facts["outputs"][0]["type"] == "float32"
    np.testing.assert_array_equal(case.kept(samples.INPUTS)[0][0], rows)
    np.testing.assert_array_equal(case.kept(samples.CALIBRATION)[1][0], rows + 2)
    np.testing.assert_array_equal(case.kept(samples.REFERENCE)[0][0], answers)
