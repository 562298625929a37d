"""Options that are set are written as a command line would have them."""

from workbench.planning.questions import ModelQuestion, OwnQuestion


def test_only_what_differs_from_the_default_is_written() -> None:
    assert [*ModelQuestion("m.onnx").options()] == ["--model", "m.onnx"]
    question = ModelQuestion("m.onnx", min_agreement=1.0, shapes=("a=1", "b=2"))
    expected = "--model m.onnx --min-agreement 1 --shape a=1 --shape b=2"
    assert [*question.options()] == expected.split()
    own = OwnQuestion("torch", "m.py", arguments=("x",), train=True, max_error=0.5, pickled=True)
    expected = "--torch m.py --max-error 0.5 --train --allow-pickle"
    assert [*own.options()] == expected.split()
