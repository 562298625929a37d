"""The options of `advise --torch`, `--function` and `--command`: written down, and refused."""

import os
import shlex
import warnings
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from plans import parsed

from workbench.cli import main
from workbench.planning import scenarios
from workbench.planning.announcing import planned
from workbench.planning.questions import MODES, ModelQuestion, OwnQuestion, parse_over
from workbench.planning.request import Request, check
from workbench.planning.rows import resolve
from workbench.planning.usage import UsageError, new_folder
from workbench.report import run_files
from workbench.stats.objectives import OF_CODE

BUILD = OwnQuestion("torch", "package.module:build")
NAN = float("nan")


def refusal(request: Request) -> str:
    with pytest.raises(UsageError) as refused:
        check(request)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a current directory with a script, an archive and a pickle."""
    for name in ("script.py", "model.pt2", "model.pt"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)


# ------------------------------------------------------------- written down

words = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=6)
# What a shell may hand over: also empty, dashes, `--` itself, spaces and quotes.
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
arguments = st.lists(texts | st.sampled_from(["--", "--lr=3", "-x", "", ","]), max_size=4).map(
    tuple
)
shared = {"target": words, "objective": st.sampled_from(OF_CODE), "save_best": st.none() | words}
errors = st.none() | st.floats(0, 1, exclude_min=True)
questions = st.one_of(
    st.builds(
        OwnQuestion,
        kind=st.just("torch"),
        arguments=arguments,
        max_error=errors,
        train=st.booleans(),
        pickled=st.booleans(),
        **shared,
    ),
    st.builds(OwnQuestion, kind=st.just("function"), max_error=errors, **shared),
    st.builds(
        OwnQuestion,
        kind=st.just("command"),
        over=st.lists(st.builds("{}={},{}".format, words, words, words), max_size=3).map(tuple),
        until=st.none() | words,
        **shared,
    ),
)
some_words = st.lists(words, max_size=3).map(tuple)


@given(
    st.builds(
        Request,
        question=questions,
        budget_s=st.none() | st.floats(1, 86_400),
        quick=st.booleans(),
        devices=some_words,
        modes=some_words,
        threads=st.lists(st.integers(1, 99), max_size=3, unique=True).map(tuple),
        batch=st.lists(st.integers(1, 10**6), max_size=3, unique=True).map(tuple),
        prices=some_words,
        python=st.none() | words,
        seed=st.integers(0, 2**31 - 1),
        strict=st.booleans(),
    )
)
def test_every_question_survives_its_own_command_line(request_: Request) -> None:
    assert parsed(request_.arguments()) == request_
    assert parsed(shlex.split(shlex.join(request_.arguments()))) == request_


def test_options_of_display_stand_before_the_arguments_of_the_script() -> None:
    own = OwnQuestion("torch", "script.py", arguments=("--quick", "--", "x"))
    given = Request(question=own, seed=3).arguments("--jsonl")
    assert given == [
        *["advise", "--torch", "script.py", "--seed", "3"],
        *["--jsonl", "--", "--quick", "--", "x"],
    ]


@pytest.mark.parametrize("start", [[], ["advise"]])
def test_the_bare_command_takes_the_same_options_and_arguments(start: list[str]) -> None:
    asked = parsed([*start, "--torch", "s.py", "--quick", "--", "advise", "--quick"])
    assert asked == Request(
        question=OwnQuestion("torch", "s.py", arguments=("advise", "--quick")), quick=True
    )


def test_other_commands_keep_what_follows_two_dashes(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def refuse(run: str, **_: bool) -> None:
        opened.append(run)
        raise UsageError("read")

    monkeypatch.setattr(run_files, "open_run", refuse)
    with pytest.raises(UsageError, match="read"):
        main.cli.main(["open", "--", "-odd.json"], standalone_mode=False)
    assert opened == ["-odd.json"]


def test_only_what_differs_from_the_default_is_written() -> None:
    for question, expected in (
        (ModelQuestion("m.onnx"), "--model m.onnx"),
        (
            ModelQuestion("m.onnx", min_agreement=1.0, shapes=("a=1", "b=2")),
            "--model m.onnx --min-agreement 1 --shape a=1 --shape b=2",
        ),
        (
            OwnQuestion("torch", "m.py", arguments=("x",), train=True, max_error=0.5, pickled=True),
            "--torch m.py --max-error 0.5 --train --allow-pickle -- x",
        ),
    ):
        assert Request(question=question).arguments() == ["advise", *expected.split()]


# ---------------------------------------------------------------- its row


def test_its_row_is_filled_from_the_code_itself_and_saves_nothing_again() -> None:
    own = OwnQuestion("function", "package.module:work", objective="throughput", save_best="best")
    request = Request(question=own, seed=3)
    assert request.budget == 60.0
    (row,) = resolve(request, scenarios.load())
    assert (row.scenario.id, row.workload.name, row.cases) == ("own", "own", [])
    assert (row.scenario.title, row.scenario.objective) == ("package.module:work", "throughput")
    assert planned(row, request, 0.0).reproduce == (
        "workbench advise --function package.module:work --objective throughput --seed 3"
    )


# ----------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "own",
    [
        BUILD,
        OwnQuestion("torch", "m:Outer.build", train=True, max_error=1.0),
        OwnQuestion("torch", "script.py", arguments=("--epochs", "1")),
        OwnQuestion("torch", "script.py::Net"),
        OwnQuestion("torch", "./model.pt2", save_best="best"),
        OwnQuestion("torch", "model.pt", pickled=True),
        OwnQuestion("function", "größe:fläche"),
        OwnQuestion("command", "python train.py", until=r"epoch \d+"),
        OwnQuestion("command", "run {device} {n}", over=("device=cpu,cuda", "n=1,2")),
    ],
    ids=lambda own: own.target,
)
@pytest.mark.usefixtures("folder")
def test_what_can_be_raced_is_let_through(own: OwnQuestion) -> None:
    check(Request(question=own))


def test_what_code_can_be_asked_to_use_is_let_through() -> None:
    check(Request(question=BUILD, modes=("plain", "nhwc+compile"), batch=(1, 8), threads=(1, 2)))
    check(Request(question=OwnQuestion("function", "m:work"), batch=(8,), threads=(1, 2)))


WRONG = [
    (OwnQuestion("torch", ""), "--torch takes package.module:build, script.py, or model.pt2"),
    (OwnQuestion("torch", "model"), "not 'model'"),
    (
        OwnQuestion("torch", "model.onnx"),
        "takes no ONNX file, but `workbench model model.onnx` does",
    ),
    (OwnQuestion("torch", "a.ipynb"), "; `jupyter nbconvert --to script a.ipynb` makes a script"),
    (OwnQuestion("torch", "a:"), "not 'a:'"),
    (
        OwnQuestion("torch", "a/b.py:c"),
        "--torch takes a.b:c, without .py, or a/b.py::c, which runs it",
    ),
    (OwnQuestion("torch", "/a/b.py:c"), "--torch takes /a/b.py::c, which runs it"),
    (OwnQuestion("function", "./a/b.py:c"), "--function takes a.b:c, without .py"),
    (OwnQuestion("function", "/a/b.py:c"), "--function takes package.module:work"),
    (OwnQuestion("torch", "a.:b"), "not 'a.:b'"),
    (OwnQuestion("torch", "a::b"), "not 'a::b'"),
    (OwnQuestion("torch", "a:b\n"), r"not 'a:b\n'"),
    (OwnQuestion("torch", "gone.py"), "--torch: there is no file gone.py"),
    (OwnQuestion("torch", "gone.py::Net"), "--torch: there is no file gone.py"),
    (OwnQuestion("torch", "gone.pt2"), "--torch: there is no file gone.pt2"),
    (OwnQuestion("torch", f"{'long' * 99}.py"), "--torch: there is no file longlong"),
    (OwnQuestion("torch", "."), "not '.'"),
    (OwnQuestion("torch", "model.pt2::Net"), "not 'model.pt2::Net'"),
    (OwnQuestion("torch", "model.pt"), "or trust it with --allow-pickle"),
    (
        OwnQuestion("torch", "script.py::Net", train=True, save_best="best"),
        "--save-best saves a training only with a builder: --torch package.module:build",
    ),
    (OwnQuestion("torch", "a:b", arguments=("x",)), "what follows -- belongs to a script"),
    (OwnQuestion("torch", "model.pt2", arguments=("x",)), "what follows -- belongs to a script"),
    (OwnQuestion("torch", "a:b", objective="energy"), "--objective latency or throughput"),
    (OwnQuestion("torch", "a:b", max_error=0.0), "--max-error must be above 0"),
    (OwnQuestion("torch", "a:b", max_error=NAN), "--max-error must be above 0"),
    (OwnQuestion("function", "script.py"), "--function takes package.module:work, not 'script.py'"),
    (OwnQuestion("function", ""), "--function takes package.module:work"),
    (OwnQuestion("command", " "), "--command is empty"),
    (OwnQuestion("command", "x", until="("), "--until is not a regular expression: missing )"),
    (OwnQuestion("command", "x", until="x{99999999999}"), "the repetition number is too large"),
    (OwnQuestion("command", "x", until="(" * 2000 + ")" * 2000), "--until is not a regular"),
    (OwnQuestion("command", "x", over=("n=1",)), "--over"),
    (OwnQuestion("command", "x {n}"), "--over"),
    (OwnQuestion("command", "x {n}", over=("n",)), "--over"),
]


@pytest.mark.parametrize(("own", "expected"), WRONG, ids=[repr(o.target) + w for o, w in WRONG])
@pytest.mark.usefixtures("folder")
def test_what_cannot_be_raced_is_refused_in_one_line(own, expected: str) -> None:
    assert expected in refusal(Request(question=own))


def test_no_warning_of_a_pattern_names_our_own_line() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OwnQuestion("command", "x", until="[[x]").check()


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (Request(question=BUILD, scenarios=("a", "b")), "leave out --torch or a b"),
        (
            Request(
                question=OwnQuestion("command", "x {n}", over=("n=1,2",)), scenarios=("m=3,4",)
            ),
            "--over takes one axis: add --over m=3,4",
        ),
        (
            Request(question=BUILD, all_scenarios=True),
            "these options do not apply to --torch: --all",
        ),
        (
            Request(question=OwnQuestion("command", "x"), crossover=True, what_if=("H100",)),
            "these options do not apply to --command: --crossover, --what-if",
        ),
        (Request(question=BUILD, scenario_file="x.toml"), "do not apply to --torch: --scenarios"),
        (Request(question=BUILD, settings=("n=1",)), "do not apply to --torch: --set"),
        (
            Request(question=OwnQuestion("command", "x"), threads=(1,), batch=(8,)),
            "these options do not apply to --command: --threads, --batch",
        ),
        (
            Request(
                question=OwnQuestion("function", "m:work"), precisions=("bf16",), modes=("nhwc",)
            ),
            "these options do not apply to --function: --precision, --mode",
        ),
        (
            Request(question=OwnQuestion("command", "x"), backends=("torch",)),
            "these options do not apply to --command: --backend",
        ),
        (Request(question=BUILD, batch=(1, 0)), "--batch must be between"),
        (
            Request(question=BUILD, modes=("nhcw+compile",)),
            "unknown mode 'nhcw'; did you mean nhwc?",
        ),
        (Request(question=BUILD, modes=("fast",)), f"Choices: {', '.join(MODES)}"),
        (Request(question=ModelQuestion("m"), batch=(0,)), "--batch must be between"),
    ],
)
def test_options_that_do_not_belong_are_refused(request_: Request, expected: str) -> None:
    assert expected in refusal(request_)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--torch", "a:b", "--model", "m.onnx"], "--model and --torch exclude each other"),
        (["--function", "a:b", "--command", "x"], "--function and --command exclude each other"),
        (["--over", "n=1"], "--over belongs to --command"),
        (["--torch", "a:b", "--until", "x"], "--until belongs to --command"),
        (["--function", "a:b", "--train"], "--train belongs to --torch"),
        (["--model", "m.onnx", "--allow-pickle"], "--allow-pickle belongs to --torch"),
        (["--torch", "a:b", "--inputs", "x.npz"], "--inputs belongs to --model"),
        (["--command", "x", "--max-error", "0.1"], "--max-error belongs to --model or --torch"),
        (["--", "realtime"], "what follows -- belongs to --torch"),
        (["--model", "m.onnx", "--", "x"], "what follows -- belongs to --torch"),
    ],
)
@pytest.mark.parametrize("start", [[], ["advise"]])
def test_an_option_has_something_to_belong_to(start, arguments, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        parsed([*start, *arguments])


def test_a_share_of_zero_reaches_the_check() -> None:
    asked = parsed(["advise", "--torch", "a:b", "--max-error", "0"])
    assert "--max-error must be above 0" in refusal(asked)


# ------------------------------------------------------- where it is saved


def test_a_new_folder_takes_what_is_saved(tmp_path: Path) -> None:
    best = tmp_path / "best"
    assert new_folder("--save-best", best) == best
    assert not best.exists(), "a check leaves nothing behind"
    (tmp_path / "link").symlink_to(best)
    assert new_folder("--save-best", tmp_path / "link") == best


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("full", "File exists"),
        ("full/file", "File exists"),
        ("full/file/best", "Not a directory"),
        ("gone/best", "No such file or directory"),
        ("/dev/null", "File exists"),
    ],
)
def test_any_other_place_is_refused_with_its_reason(tmp_path: Path, name, reason) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(UsageError, match=f"^--save-best: .* cannot be written: {reason}; name a"):
        new_folder("--save-best", tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="Permission denied"):
        new_folder("--save-best", tmp_path / "best")


# ------------------------------------------------------- values of --over


@pytest.mark.parametrize(
    ("over", "command", "says"),
    [
        (["workers"], "run {workers}", "takes NAME=VALUE,VALUE, not 'workers'"),
        (["batch=1"], "run {workers}", "--over batch: the command has no placeholder {batch}"),
        ([], "run {workers}", "the command has {workers}: add --over workers="),
        (["x="], "run {x}", "a value is empty"),
        (["x=1,,2"], "run {x}", "a value is empty"),
        (["x=1,1"], "run {x}", "a value is empty or not printable, or two have the same last part"),
        (
            ["x=a/c.yaml,b/c.yaml"],
            "run {x}",
            "a value is empty or not printable, or two have the same last part",
        ),
        (["x=a\nb"], "run {x}", "a value is empty or not printable"),
        (["x=1", "x=2"], "run {x}", "--over x is given twice"),
        (["x=" + ",".join(map(str, range(65)))], "run {x}", "at most 64 combinations"),
        ([], "run 'x", "--command: No closing quotation"),
        ([], "  ", "--command is empty"),
        ([], "prepare && run", "run without a shell, so write `sh -c '...'` around '&&'"),
        ([], "run 2>&1", "around '2>&1'"),
        ([], "prepare; run", "around ';'"),
        ([], "~/venv/bin/python x", "around '~'"),
        ([], "PYTHONPATH=$PWD run", "around '$PWD'"),
        ([], "run <in.txt", "around '<in.txt'"),
        ([], "run a.py|tee log", "around 'a.py|tee', or quote it as text"),
        ([], "run>out", "around 'run>out'"),
        ([], "prepare&&run", "around 'prepare&&run'"),
        ([], "run 'a b' /proc/self/stat*", "around '/proc/self/stat*'"),
    ],
)
def test_a_wrong_over_is_one_sentence(over: list[str], command: str, says: str) -> None:
    with pytest.raises(ValueError, match=r"--") as caught:
        parse_over(over, command)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "command",
    [
        "sh -c 'a && b > $c'",
        r"find . -exec a \;",
        "cut -d '|' a;b",
        "curl host/?a=1&b=2",
        "run 'a>b'",
        "grep a$ x~/y",
        "run '/*' nothing*here",
    ],
)
def test_quoted_words_need_no_shell(command: str) -> None:
    assert parse_over([], command) == {}


def test_values_come_back_as_they_were_given() -> None:
    assert parse_over(["x=2,02,1e3,text, 7 "], "run {x}") == {"x": ["2", "02", "1e3", "text", "7"]}
