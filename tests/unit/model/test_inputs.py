"""Sizes, random values and a user's own samples fit the model, or the error says how not."""

from typing import Any

import numpy as np
import onnx_models as made
import pytest
from hypothesis import given, strategies as st
from lab_case import Case, run_shapes
from onnx import TensorProto, helper, numpy_helper

from workbench.contract import WorkloadError
from workloads.lab import samples, shapes, values
from workloads.lab.shapes import Input


def test_the_batch_is_the_dynamic_first_axis(case: Case) -> None:
    facts = case.inspect(made.conv_net(), batch=3)
    assert facts["batch"] == 3
    assert run_shapes(facts) == {"x": [3, 3, 8, 8]}
    assert case.inspect(made.conv_net())["batch"] == 1


def test_an_axis_named_like_the_batch_is_it_too(case: Case) -> None:
    facts = case.inspect(made.lstm(), batch=2)
    assert run_shapes(facts) == {"x": [128, 2, 3]}
    assert facts["batch"] == 2


def test_a_first_axis_named_like_a_sequence_is_no_batch(case: Case) -> None:
    net = made.one_node(shape=["sequence_length", 4])
    facts = case.inspect(net)
    assert (facts["batch"], run_shapes(facts)) == (None, {"x": [128, 4]})
    assert "has no batch axis" in str(case.refusal(net, batch=2))


def test_a_fixed_batch_stays(case: Case) -> None:
    assert case.inspect(made.quantised(), batch=1)["batch"] == 1
    error = case.refusal(made.quantised(), batch=4)
    assert error.code == "bad_input"
    assert "fixed at 1" in str(error)
    assert "dynamic first axis" in str(error.hint)


@pytest.mark.parametrize(("axis", "batch"), [(0, None), (1, 3)])
def test_a_fixed_first_axis_that_no_output_has_is_no_batch(axis: int, batch, case: Case) -> None:
    node = helper.make_node("ReduceMean", ["x"], ["y"], axes=[axis], keepdims=0)
    net = made.model([node], [made.port("x", shape=[3, 8])], [made.port("y")])
    assert case.inspect(net)["batch"] == batch
    assert case.inspect(net, batch=3)["batch"] == 3


def test_shapes_given_win_and_are_checked(case: Case) -> None:
    facts = case.inspect(made.conv_net(), shapes={"x": [5, 3, 8, 8]})
    assert (facts["batch"], run_shapes(facts)) == (5, {"x": [5, 3, 8, 8]})
    for shape, message in (
        ({"z": [1]}, "no such input"),
        ({"x": [1, 3]}, "2 axes, the input 4"),
        ({"x": [1, 4, 8, 8]}, "axis 1 is fixed at 3"),
    ):
        error = case.refusal(made.conv_net(), shapes=shape)
        assert message in str(error)
        assert "x [batch, 3, 8, 8]" in str(error.hint)
    error = case.refusal(made.conv_net(), shapes={"x": [5, 3, 8, 8]}, batch=4)
    assert "contradict" in str(error)


def test_axes_of_one_name_get_one_size(case: Case) -> None:
    facts = case.inspect(made.tokens(), shapes={"ids": [2, 7]})
    assert run_shapes(facts) == {"ids": [2, 7], "attention_mask": [2, 7]}


def needs(size: int, axes: Any) -> Any:
    """A product with a weight of `size` rows: only that size runs."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    return made.model(
        [node], [made.port("x", shape=axes)], [made.port("y")], [made.weight("w", size, 2)]
    )


@pytest.mark.parametrize("axis", [None, "?", "sequence", "height", "whatever"])
def test_a_trial_finds_what_runs_where_names_suggest_nothing_or_a_wrong_size(axis, case) -> None:
    assert run_shapes(case.inspect(needs(576, ["n", axis]))) == {"x": [1, 576]}


def test_a_decoder_with_a_cache_gets_sizes_that_fit_together(case: Case) -> None:
    nodes = [
        helper.make_node("Concat", ["past", "ids"], ["all"], axis=1),
        helper.make_node("Add", ["all", "attention_mask"], ["y"]),
    ]
    axes = {"past": "past_sequence", "ids": "sequence", "attention_mask": "total_sequence"}
    ports = [made.port(name, made.INT64, ["batch", axis]) for name, axis in axes.items()]
    found = run_shapes(case.inspect(made.model(nodes, ports, [made.port("y", made.INT64)])))
    assert found["attention_mask"][1] == found["past"][1] + found["ids"][1]


def test_a_trial_finds_channels(case: Case) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    net = made.model(
        [node],
        [made.port("x", shape=[None, None, None, None])],
        [made.port("y")],
        [made.weight("w", 2, 1, 3, 3)],
    )
    assert run_shapes(case.inspect(net))["x"][1] == 1


def test_names_of_inputs_suggest_what_whisper_and_diffusion_models_take() -> None:
    ports = [
        Input("input_features", "float32", ["batch", "features", "frames"]),
        Input("sample", "float32", ["batch", 4, "height", "width"]),
        Input("timestep", "int64", ["steps"]),
    ]
    found = next(shapes.possible_sizes(ports, {}, None)).shapes
    assert list(found.values()) == [[1, 80, 3000], [1, 4, 64, 64], [1]]


def test_pictures_with_channels_last_have_the_usual_size(case: Case) -> None:
    net = made.one_node("Relu", shape=[None, None, None, 3])
    assert run_shapes(case.inspect(net)) == {"x": [1, 224, 224, 3]}


@pytest.mark.parametrize(
    ("name", "axes", "size"),
    [
        ("input_values", ["batch_size", "sequence_length"], 16000),
        ("waveform", [None, 1, None], 16000),
        ("audio_signal", [None, 80, "time"], 128),  # features
    ],
)
def test_audio_lasts_a_second(name: str, axes: list[Any], size: int) -> None:
    first = next(shapes.possible_sizes([Input(name, "float32", axes)], {}, None))
    assert first.shapes[name] == [1, *axes[1:-1], size]


def test_without_a_size_that_runs_the_first_guess_is_named(case: Case) -> None:
    error = case.refusal(needs(7777, ["n", "sequence"]))
    assert error.code == "bad_model"
    assert "x [1, 128]" in str(error)
    assert "--shape" in str(error.hint)


def test_zero_size_and_unknown_shapes_are_refused_by_name(case: Case) -> None:
    assert "input x has an axis of size 0" in str(case.refusal(made.one_node(shape=[0, 4])))
    unknown = made.one_node(shape=None)
    assert "input x has no declared shape" in str(case.refusal(unknown))
    assert run_shapes(case.inspect(unknown, shapes={"x": [2, 3]})) == {"x": [2, 3]}


def test_enormous_inputs_are_refused_before_they_are_made(case: Case) -> None:
    error = case.refusal(made.one_node(shape=[1, 2**40]))
    assert "too large" in str(error)


def noisy(scale: float, last: str) -> Any:
    """Adds noise of this scale to its input, before the operator `last`."""
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["drawn"]),
        helper.make_node("Mul", ["drawn", "scale"], ["noise"]),
        helper.make_node("Add", ["x", "noise"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["positive"]),
        helper.make_node(last, ["positive"], ["y"]),
    ]
    weights = [numpy_helper.from_array(np.array(scale, np.float32), "scale")]
    kind = made.INT64 if last == "NonZero" else made.FLOAT
    return made.model(nodes, [made.port("x", shape=[4, 64])], [made.port("y", kind)], weights)


@pytest.mark.parametrize("last", ["Relu", "NonZero"])  # the length of the latter is by chance
def test_a_model_that_answers_by_chance_is_refused_before_it_races(case: Case, last: str) -> None:
    error = case.refusal(noisy(1.0, last))
    assert error.code == "bad_model"
    assert "answers differently each time, so no variant" in str(error)
    assert "random operators" in str(error.hint)
    assert case.inspect(noisy(0.0, last))["precision"] == "fp32", "its noise changes nothing"


AXES = st.lists(st.one_of(st.integers(1, 9), st.none(), st.sampled_from("abcht")), max_size=5)


@given(st.lists(AXES, max_size=3), st.one_of(st.none(), st.integers(1, 4)))
def test_every_candidate_keeps_fixed_axes_and_names(axes: list[Any], batch: int | None) -> None:
    ports = [Input(f"x{number}", "float32", each) for number, each in enumerate(axes)]
    try:
        found = list(shapes.possible_sizes(ports, {}, batch))
    except WorkloadError as error:
        assert error.code == "bad_input"
        assert batch is not None
        return
    assert 1 <= len(found) <= shapes.TRIALS
    for sizes in found:
        by_name: dict[str, int] = {}
        for port in ports:
            for axis, size in zip(port.axes or [], sizes.shapes[port.name], strict=True):
                assert size >= 1
                assert not isinstance(axis, int) or axis == size
                assert not isinstance(axis, str) or by_name.setdefault(axis, size) == size


@pytest.mark.parametrize(
    ("past", "tokens", "size"),
    [("past_sequence_length", "sequence_length", 16), ("s1", "s2", 64)],
)
def test_a_sum_in_a_name_is_worked_out(past: str, tokens: str, size: int) -> None:
    ports = [
        Input("mask", "int64", ["batch", f"{past} + {tokens}"]),
        Input("ids", "int64", ["batch", tokens]),
        Input("past", "float32", ["batch", 2, past, 8]),
    ]
    for number, tried in enumerate(shapes.possible_sizes(ports, {"ids": [1, 9]}, None)):
        assert tried.shapes["mask"][1] == tried.shapes["past"][2] + 9
        assert number or tried.shapes["past"][2] == size


def test_values_come_from_what_the_graph_does_with_them(case: Case) -> None:
    origins = {port["name"]: port["values"] for port in case.inspect(made.tokens(50))["inputs"]}
    assert origins == {
        "ids": "0..49, the rows of its table",
        "attention_mask": "ones, a mask by its name",
    }
    ids, mask = case.kept(samples.INPUTS)[0]
    assert ids.dtype == np.int32
    assert 1 < ids.max() < 50
    assert (mask == 1).all()


def test_a_number_that_the_graph_compares_with_is_used(case: Case) -> None:
    rate = case.inspect(made.branching())["inputs"][1]
    assert rate["values"] == "16000, which the graph compares it with"
    assert case.kept(samples.INPUTS)[0][1] == 16000


def test_a_loop_runs_several_times(case: Case) -> None:
    node = helper.make_node("Add", ["before", "x"], ["after"])
    same = helper.make_node("Identity", ["going"], ["on"])
    ports = [made.port("step", made.INT64, []), made.port("going", TensorProto.BOOL, [])]
    body = helper.make_graph(
        [node, same],
        "body",
        [*ports, made.port("before", shape=[4])],
        [made.port("on", TensorProto.BOOL, []), made.port("after", shape=[4])],
    )
    loop = helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)
    inputs = [made.port("x", shape=[4]), made.port("count", made.INT64, [])]
    facts = case.inspect(made.model([loop], inputs, [made.port("y")]))
    assert facts["inputs"][1]["values"] == "8, the iterations of its loop"
    sample = case.kept(samples.INPUTS)[0]
    assert case.kept(samples.REFERENCE)[0][0] == pytest.approx(9 * sample[0])


def test_a_length_is_that_of_the_longest_axis(case: Case) -> None:
    nodes = [
        helper.make_node("Cast", ["audio_lens"], ["n"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["x", "n"], ["y"]),
    ]
    ports = [made.port("x", shape=["batch", 300, "frames"])]
    ports.append(made.port("audio_lens", made.INT64, ["batch"]))
    facts = case.inspect(made.model(nodes, ports, [made.port("y")]))
    assert facts["inputs"][1]["values"] == "the longest axis, a length by its name"
    assert (case.kept(samples.INPUTS)[0][1] == run_shapes(facts)["x"][2]).all()


def test_a_one_hot_code_is_a_table(case: Case) -> None:
    codes = numpy_helper.from_array(np.arange(11), "codes")
    nodes = [
        helper.make_node("Equal", ["x", "codes"], ["e"]),
        helper.make_node("Cast", ["e"], ["y"], to=TensorProto.FLOAT),
    ]
    port = made.port("x", TensorProto.INT64, ["n", 1])
    facts = case.inspect(made.model(nodes, [port], [made.port("y")], [codes]))
    assert facts["inputs"][0]["values"] == "0..10, the rows of its table"


def test_other_types_have_values_of_their_own() -> None:
    kinds = ("float16", "float64", "bool", "uint8", "int64")
    ports = [Input(kind, kind, [1000]) for kind in kinds]
    maker = values.Maker(made.mlp(), ports)
    sample = maker.sample(dict.fromkeys(kinds, (1000,)), np.random.default_rng(0))
    assert all(str(array.dtype) == name for name, array in sample.items())
    assert abs(float(sample["float16"].mean())) < 0.2
    assert sample["bool"].all()
    assert maker.origins["uint8"] == "random bytes"
    assert maker.origins["int64"] == "random, 0 or 1"


def test_samples_are_seeded_and_calibration_differs(case: Case) -> None:
    facts = case.inspect(made.mlp(), seed=1)
    assert facts["samples"] == facts["calibration_samples"] == 8
    assert not facts["same_samples"]
    first = np.stack([sample[0] for sample in case.kept(samples.INPUTS)])
    calibration = np.stack([sample[0] for sample in case.kept(samples.CALIBRATION)])
    assert not np.isin(first, calibration).any()
    case.inspect(made.mlp(), seed=1)
    assert (np.stack([sample[0] for sample in case.kept(samples.INPUTS)]) == first).all()
    case.inspect(made.mlp(), seed=2)
    assert not (np.stack([sample[0] for sample in case.kept(samples.INPUTS)]) == first).any()


def test_the_reference_is_what_the_model_answers(case: Case) -> None:
    case.inspect(made.one_node("Relu"))
    for (x,), (y,) in zip(case.kept(samples.INPUTS), case.kept(samples.REFERENCE), strict=True):
        assert (y == np.maximum(x, 0)).all()
