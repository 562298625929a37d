"""Bad input gets one line that says what to do, the right exit code, and no traceback."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import WORKLOADS

USAGE = [  # one of each kind; the unit tests of planning have the others
    (("run", "spinn"), "did you mean spin?"),
    (("advise", "trainin"), "did you mean training?"),
    (("advise", "training", "--all"), "--all means every scenario"),
    (("advise", "--scenarios", "/no/such.toml"), "/no/such.toml cannot be read: No such file"),
    (("run", "spin", "--device", "cuda:9"), "no device cuda:9 here"),
    (("run", "spin", "--set", "ms=fast"), "a number"),
    (("run", "spin", "--budget", "0"), "--budget"),
    (("run", "spin", "--quick", "--thorough"), "exclude each other"),
    (("run", "spin", "--json", "--jsonl"), "exclude each other"),
    (("run", "spin", "--python", "/no/such/python"), "--python"),
    (("run", "spin", "--output", "/no/such/folder/x.json"), "--output"),
    (("fleet",), "name a command: collect, manifest, plan, run, show"),
    (("run", "spin", "--threads", "1,x"), "--threads takes whole numbers"),
    (("run", "spin", "--trace", "/no/such/folder/x.json"), "--trace"),
    (("run", "spin", "--largest-batch"), "no batch in spin"),
    (("advise", "--price", "cpu=-1"), "a price must be between"),
    (("advise", "--prices", "/no/such/file"), "cannot be read"),
    (("--torch", "model"), "--torch takes package.module:build, script.py, or model.pt2"),
    (("advise", "--torch=a.py", "--lr", "1"), "The arguments of a script follow `--`."),
    (("export", "last", "--json"), "No such option '--json'. --json belongs to `workbench open`."),
    (("open", "last", "--csv"), "No such option '--csv'. --csv belongs to `workbench export`."),
    (("advise", "--torch", "a:b", "--save-best", "/dev/null"), "File exists; name a new folder"),
    (("open", "20990101-000000-dead"), "no such file or run"),
    (("export", "--html", "last"), "Missing argument 'RUN'. It comes before the options."),
    (
        ("--json", "run", "spin"),
        "put --json after workbench run, if `workbench run --help` lists it",
    ),
    (("fly",), "fly"),
    (("help",), "did you mean --help?"),
    (("run", "spin", "ms=3"), "ms=3 is no workload: a parameter takes --set ms=3"),
    (("run", "spin", "--ms", "3"), "A parameter of a workload takes --set NAME=VALUE."),
    (("export", "last", "run.html"), "Each file follows its format, such as --html run.html."),
    (("list", "x"), "`workbench list --help` lists what it takes."),
    (("run", "spin", "--fast"), "--fast"),
    # A plain run has no verdict, so a gate on it would always pass.
    (("run", "spin", "--strict"), "No such option '--strict'."),
]


# Answers each request in a process of its own, which starts with the program already imported.
FORKS = """
import json, os, sys, tempfile
import workbench.engine.engine
from workbench import catalog
from workbench.cli.main import main
from workbench.planning import scenarios

catalog.load_all()
scenarios.load()

def answer(arguments):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.argv = ["workbench", *arguments]
            try:
                main()
            except SystemExit as ended:
                sys.stdout.flush()
                os._exit(ended.code)  # a whole end of Python takes longer than the request
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out.seek(0)
        err.seek(0)
        return code, out.read().decode(), err.read().decode()

requests = json.load(sys.stdin)
json.dump([answer(arguments) for arguments in requests], sys.stdout)
"""


@pytest.fixture(scope="module")
def answers(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[tuple[str, ...], tuple[int, str, str]]:
    """Exit code, stdout and stderr of every wrong request."""
    requests = [[*each, *(["--json"] if each[:1] == ("run",) else [])] for each, _ in USAGE]
    state = str(tmp_path_factory.mktemp("state"))
    done = subprocess.run(
        [sys.executable, "-c", FORKS],
        input=json.dumps(requests),
        env={**os.environ, "XDG_STATE_HOME": state, "WORKBENCH_WORKLOADS": str(WORKLOADS)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not [*Path(state).rglob("*.jsonl")], "a refused run leaves no journal"
    return dict(zip([each for each, _ in USAGE], json.loads(done.stdout), strict=True))


@pytest.mark.parametrize(("arguments", "expected"), USAGE, ids=[" ".join(a) for a, _ in USAGE])
def test_a_wrong_request_is_one_line_and_exit_2(answers, arguments, expected: str) -> None:
    code, printed, log = answers[arguments]
    assert code == 2
    assert printed == ""
    assert "Traceback" not in log
    *progress, line = log.strip().splitlines()
    assert line.startswith("workbench: ")
    assert expected in line
    assert not any("Traceback" in text for text in progress)


def test_a_wrong_scenario_file_is_reported_with_its_line(cli, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[[scenario]]\nid = 'one'\nobjective = 'speed'\n")
    done = cli("advise", "--scenarios", str(file), "--json")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith(f"workbench: {file}, line 3: objective: must be throughput, ")


def test_an_interpreter_that_cannot_run_is_named_before_the_run(cli, tmp_path: Path) -> None:
    file = tmp_path / "python"
    file.write_text("print('no interpreter is named')\n")
    file.chmod(0o755)
    done = cli("run", "spin", "--python", str(file), "--json")
    assert (done.returncode, done.stdout) == (2, "")
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith(f"workbench: --python: {file} could not be started: Exec format error; ")
    assert not list(cli.runs.glob("*"))


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("empty.json", "", "not a workbench document: it is empty or ends too early"),
        ("text.jsonl", "hello\nworld\n", "not the journal of a run"),
    ],
)
def test_a_file_that_is_no_run_is_refused(cli, tmp_path: Path, name, content, expected) -> None:
    file = tmp_path / name
    file.write_text(content)
    done = cli("open", str(file), "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_broken_workload_file_is_named_and_the_others_still_work(cli, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")
    folders = f"{cli.environment['WORKBENCH_WORKLOADS']}:{tmp_path}"
    listed = cli("list", WORKBENCH_WORKLOADS=folders)
    assert listed.returncode == 0
    assert re.search(r"^broken +cannot be used", listed.stdout, re.MULTILINE)
    assert re.search(r"^spin +", listed.stdout, re.MULTILINE)
    done = cli("run", "broken", WORKBENCH_WORKLOADS=folders)
    assert done.returncode == 2
    assert "nothing_of_that_name" in done.stderr


def test_a_workload_folder_that_is_missing_is_named(cli) -> None:
    done = cli("list", WORKBENCH_WORKLOADS="/no/such/folder")
    assert done.returncode == 2
    assert "/no/such/folder" in done.stderr
