"""The options of `advise --model`: what they ask, how they are written, and what is refused."""

import click
import pytest
from hypothesis import given, strategies as st
from plans import parsed

from workbench.planning import scenarios
from workbench.planning.questions import ModelQuestion
from workbench.planning.request import Request, check
from workbench.planning.rows import resolve
from workbench.planning.usage import UsageError
from workbench.stats.objectives import OF_MODELS


def asked(**options: object) -> Request:
    return Request(question=ModelQuestion("m.onnx", **options))


def test_the_limit_is_of_the_relative_error_unless_agreement_is_asked_for() -> None:
    default = ModelQuestion("m.onnx")
    assert (default.objective, default.metric, default.limit) == ("latency", "relative_error", 0.02)
    assert ModelQuestion("m.onnx", max_error=0.1).limit == 0.1
    agreeing = ModelQuestion("m.onnx", min_agreement=0.75)
    assert (agreeing.metric, agreeing.limit) == ("disagreement", 0.25)
    assert ModelQuestion("m.onnx", min_agreement=1.0).limit == 0.0


def test_shapes_by_input() -> None:
    shapes = ("x=1,3,224,224", "encoder=out=1", "n=7", "cache=1,0")
    found = ModelQuestion("m.onnx", shapes=shapes).run_shapes()
    assert found.pop("cache") == [1, 0]
    assert found == {"x": [1, 3, 224, 224], "encoder=out": [1], "n": [7]}


def test_a_model_has_thirty_seconds_by_default() -> None:
    assert asked().budget == 30.0
    assert Request(question=ModelQuestion("m.onnx"), quick=True).budget == 20.0
    assert Request(question=ModelQuestion("m.onnx"), thorough=True).budget == 300.0


def test_its_row_is_filled_from_the_model_itself() -> None:
    (row,) = resolve(asked(), scenarios.load())
    assert (row.scenario.id, row.scenario.title, row.cases) == ("model", "m.onnx", [])


def test_a_question_and_the_options_of_its_run_survive_their_own_command_line() -> None:
    request = Request(
        question=ModelQuestion("a b.onnx", objective="throughput"),
        budget_s=12.5,
        devices=("cpu", "fake:0@8"),
        precisions=("int8", "fp32"),
        threads=(1, 2),
        batch=(4,),
        backends=("onnxruntime",),
        thorough=True,
        strict=True,
        seed=3,
    )
    check(request)
    assert parsed(request.arguments()) == request


words = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=6)
shares = st.none() | st.floats(0, 1, exclude_min=True)


@given(
    st.builds(
        ModelQuestion,
        target=words,
        objective=st.sampled_from(OF_MODELS),
        max_error=shares,
        min_agreement=shares,
        inputs=st.none() | words,
        shapes=st.lists(
            st.builds("{}={},{}".format, words, st.integers(1, 99), st.integers(1, 99)),
            max_size=3,
            unique_by=lambda text: text.partition("=")[0],
        ).map(tuple),
        save_best=st.none() | words,
    )
)
def test_every_question_survives(question: ModelQuestion) -> None:
    request = Request(question=question)
    assert parsed(request.arguments()) == request
    if question.max_error is None or question.min_agreement is None:
        question.check()
    else:
        with pytest.raises(ValueError, match="exclude each other"):
            question.check()


NAN = float("nan")
WRONG = [
    (Request(question=ModelQuestion("")), "--model takes the path of an .onnx file"),
    (asked(max_error=0.1, min_agreement=0.9), "--max-error and --min-agreement exclude each other"),
    (asked(max_error=NAN), "--max-error must be above 0"),
    (asked(max_error=0.0), "--max-error must be above 0"),
    (asked(max_error=-0.1), "--max-error must be above 0"),
    (asked(max_error=1.5), "--max-error must be above 0"),
    (asked(min_agreement=NAN), "--min-agreement must be above 0"),
    (asked(min_agreement=0.0), "--min-agreement must be above 0"),
    (asked(min_agreement=1.5), "--min-agreement must be above 0"),
    (asked(objective="speed"), "--objective is one of latency, throughput, memory, energy"),
    (asked(shapes=("1,3",)), "--shape takes NAME=1,3,224,224, not '1,3'"),
    (asked(shapes=("x=",)), "--shape takes"),
    (asked(shapes=("=1,3",)), "--shape takes"),
    (asked(shapes=("x",)), "--shape takes"),
    (asked(shapes=("",)), "--shape takes"),
    (asked(shapes=("x=1,a",)), "--shape takes"),
    (asked(shapes=("x=1,,3",)), "--shape takes"),
    (asked(shapes=("x=1.5",)), "--shape takes"),
    (asked(shapes=("x=0,3",)), "--shape takes"),
    (asked(shapes=("x=1,-1",)), "--shape takes"),
    (asked(shapes=("x=1", "x=2")), "--shape: x is given twice"),
    (
        Request(question=ModelQuestion("m.onnx"), scenarios=("realtime",)),
        "leave out --model or realtime",
    ),
    (Request(question=ModelQuestion("m.onnx"), backends=("torch",)), "runs on onnxruntime"),
    (Request(question=ModelQuestion("m.onnx"), settings=("n=1",)), "do not apply to --model"),
    (Request(question=ModelQuestion("m.onnx"), modes=("nhwc",)), "do not apply to --model"),
    (Request(question=ModelQuestion("m.onnx"), batch=(1, 2)), "a model takes one --batch"),
    (Request(question=ModelQuestion("m.onnx"), batch=(0,)), "--batch must be between 1 and"),
    (Request(question=ModelQuestion("m.onnx"), batch=(10**30,)), "--batch must be between"),
    (Request(question=ModelQuestion("m.onnx"), budget_s=NAN), "--budget"),
]


@pytest.mark.parametrize(("request_", "words"), WRONG, ids=[words for _, words in WRONG])
def test_a_wrong_option_is_refused_in_one_line(request_: Request, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        check(request_)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--save-best", "out.onnx"),
        ("--inputs", "data.npz"),
        ("--shape", "x=1,3"),
        ("--max-error", "0.1"),
        ("--min-agreement", "0.9"),
        ("--objective", "memory"),
    ],
)
def test_without_a_model_its_options_have_nothing_to_say(option, value) -> None:
    with pytest.raises(UsageError, match=f"{option} belongs to --model"):
        parsed(["advise", option, value])


def test_what_a_model_takes_stays_with_advise() -> None:
    with pytest.raises(click.NoSuchOption):
        parsed(["run", "spin", "--model", "m.onnx"])
    with pytest.raises(click.BadParameter):
        parsed(["advise", "--model", "m.onnx", "--objective", "beauty"])
