"""The recipes of docs/scripting.md: scripts run on a kept run, and every option exists."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families as prometheus

from workbench.cli.main import cli as command_line
from workbench.export.schema import schema_of
from workbench.records.inspection import Check
from workbench.report.run_files import open_run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scripting.md").read_text()
PARTS = {part.partition("\n")[0]: part for part in PAGE.split("\n## ")[1:]}
REDIRECTED = re.compile(r"\d?>>?\s*\S+|<<<\s*\S+")
JQ_PROGRAM = re.compile(r"jq -\w+ '([^']*)'")
needs_jq = pytest.mark.skipif(
    shutil.which("jq") is None,
    reason="there is no jq here: only the names in its programs are known",
)

Script = Callable[..., subprocess.CompletedProcess[str]]


def block(title: str, language: str) -> str:
    """The one block of code in a part of the page."""
    (code,) = re.findall(rf"^```{language}\n(.*?)^```$", PARTS[title], re.DOTALL | re.MULTILINE)
    return code


JOB, ACTIONS = (yaml.safe_load(block(each, "yaml")) for each in ("Kubernetes", "GitHub Actions"))
(CONTAINER,) = JOB["spec"]["template"]["spec"]["containers"]
SHELL = {
    **{title: block(title, "sh") for title in ("jq", "Slurm", "cron and the textfile collector")},
    "GitHub Actions": "\n".join(
        step["run"] for job in ACTIONS["jobs"].values() for step in job["steps"] if "run" in step
    ),
    "Kubernetes": CONTAINER["command"][-1],
}


def commands(script: str) -> Iterator[list[str]]:
    """The arguments of every workbench in a script."""
    for line in REDIRECTED.sub("", script.replace("\\\n", "")).splitlines():
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        parts: list[list[str]] = [[]]
        for word in words:
            parts = [*parts, []] if set(word) <= set("()|&;") else [*parts[:-1], [*parts[-1], word]]
        yield from (part[part.index("workbench") + 1 :] for part in parts if "workbench" in part)


def accepted(arguments: list[str]) -> bool:
    """Whether the command and all its options exist."""
    return CliRunner().invoke(command_line, [*arguments, "--help"]).exit_code == 0


def test_every_block_of_the_page_is_tested() -> None:
    assert PAGE.count("\n```\n") == len(SHELL)


@pytest.mark.parametrize("title", SHELL)
def test_every_command_and_option_exists(title: str) -> None:
    found = list(commands(SHELL[title]))
    assert len(found) == SHELL[title].count("workbench ")  # paths have no blank behind it
    assert all(map(accepted, found)), found


def shown(page: str) -> Iterator[str]:
    """The commands in a page: in its text, indented lines and blocks of code."""
    page = page.replace("\\\n", "")
    fenced = "".join(re.findall(r"^```\w*\n(.*?)^```$", page, re.DOTALL | re.MULTILINE))
    yield from re.findall(r"^(?:\$ )?(workbench [^#\n]+)", fenced, re.MULTILINE)
    yield from re.findall(r"^    (workbench [^#\n]+)", page, re.MULTILINE)
    yield from re.findall(r"`(workbench [^`.][^`]+)`", page.replace("\n", " "))


def test_every_command_of_the_documentation_exists_with_its_options() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    texts = {text: page.name for page in pages for text in shown(page.read_text())}
    assert len(texts) > 100
    wrong = {text: page for text, page in texts.items() if not all(map(accepted, commands(text)))}
    assert not wrong


def test_an_option_that_does_not_exist_is_noticed() -> None:
    (wrong,) = commands("x=$(workbench ab --fail-upon 2% 2> /dev/null)")
    assert wrong == ["ab", "--fail-upon", "2%"]
    assert not accepted(wrong)
    assert not accepted(["abb"])


@pytest.mark.parametrize("title", SHELL)
def test_it_is_a_shell_script(title: str) -> None:
    done = subprocess.run(["bash", "-n"], input=SHELL[title], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_jobs_are_what_their_programs_expect() -> None:
    assert (JOB["apiVersion"], JOB["kind"]) == ("batch/v1", "Job")
    assert JOB["spec"]["template"]["spec"]["restartPolicy"] == "Never"  # a Job takes no other
    assert CONTAINER["command"][:2] == ["sh", "-c"]
    assert ACTIONS[True] == "pull_request"  # YAML 1.1 reads `on` so
    folders = {step["with"]["path"] for step in ACTIONS["jobs"]["ab"]["steps"][:2]}
    (ab,) = (words for words in commands(SHELL["GitHub Actions"]) if words[0] == "ab")
    assert folders == {ab[at + 1] for at, word in enumerate(ab) if word == "--path"}


def names(schema: object) -> set[str]:
    """Every key that a schema knows."""
    if isinstance(schema, list):
        return set().union(*map(names, schema))
    inner = schema.values() if isinstance(schema, dict) else ()
    known = schema.get("properties", {}) if isinstance(schema, dict) else {}
    return {*known, *names(list(inner))} if inner else set()


@pytest.mark.parametrize("title", ["jq", "Slurm"])
def test_the_programs_of_jq_name_keys_that_exist(title: str) -> None:
    schema = schema_of("doctor" if title == "Slurm" else "document")
    programs = JQ_PROGRAM.findall(SHELL[title])
    assert len(programs) == SHELL[title].count("jq -")
    used = {key for program in programs for key in re.findall(r"\.(\w+)", program)}
    assert used and used <= names(schema)


def program(file: Path, text: str) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@pytest.fixture
def script(environment: dict[str, str], tmp_path: Path) -> Script:
    """Runs a script in which workbench opens and exports, but measures nothing."""
    real = shlex.join([sys.executable, "-m", "workbench"])
    measured = tmp_path / "measured"
    text = (
        f'case $1 in open|export) exec {real} "$@";; esac\necho "$@" >> {measured}\n'
        f'[ "$2" != --output ] || {real} open last --json > "$3"'
    )
    program(tmp_path / "bin" / "workbench", text)

    def run(text: str, **extra: str) -> subprocess.CompletedProcess[str]:
        path = f"{tmp_path / 'bin'}:{environment['PATH']}"
        env = {**environment, "PATH": path, **extra}
        return subprocess.run(
            ["bash", "-c", text], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )

    return run


@needs_jq
def test_jq_finds_answers_and_times(script: Script, earlier_run: Path) -> None:
    done = script(f"set -eu\n{SHELL['jq']}")
    assert (done.returncode, done.stderr) == (0, "")
    document = open_run(str(earlier_run)).report.document()
    lines = done.stdout.splitlines()
    answers = [line.split("\t") for line in lines if "\t" in line]
    assert [each[:2] for each in answers] == [[s.scenario, s.device] for s in document.summary]
    assert [each[-1] for each in answers] == [s.confidence for s in document.summary]
    (device,) = (s.pick.device for s in document.summary if s.scenario == "training")
    assert f"training: {device}" in lines
    times = [line.split('",') for line in lines if line.startswith('"')]
    assert len(times) == sum(m.n > 0 for m in document.measurements)
    is_open = any(s.confidence == "open" for s in document.summary)
    assert (lines[-1] == "an answer is open or missing: measure longer") is is_open


@needs_jq
@pytest.mark.parametrize(
    ("words", "missing", "passes"),
    [
        (["sure", "tie"], [], True),
        (["sure", "open"], [], False),
        (["sure"], [{}], False),
        ([], [], False),
    ],
)
def test_the_gate_of_jq_passes_if_there_are_answers_and_all_are_settled(
    words: list[str], missing: list[object], passes: bool
) -> None:
    (gate,) = (each for each in JQ_PROGRAM.findall(SHELL["jq"]) if "IN(" in each)
    run = {"summary": [{"confidence": word} for word in words], "unanswered": missing}
    done = subprocess.run(["jq", "-e", gate], input=json.dumps(run), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (int(not passes), "")


@needs_jq
@pytest.mark.parametrize(
    ("status", "code", "drained"), [("fail", 1, True), ("warn", 0, False), ("", 0, False)]
)
def test_the_prolog_drains_a_node_that_doctor_finds_ill(
    script: Script, tmp_path: Path, status: str, code: int, drained: bool
) -> None:
    checks = [Check("driver", status, "the driver is too old"), Check("memory", "ok", "free")]
    report = json.dumps({"checks": msgspec.to_builtins(checks)}) if status else ""
    (tmp_path / "report").write_text(report)
    doctor = (
        f'[ "$*" = "doctor --json" ] && cat {tmp_path / "report"}; exit {int(status != "warn")}'
    )
    program(tmp_path / "bin" / "workbench", doctor)
    program(tmp_path / "bin" / "scontrol", f'printf "%s\\n" "$@" > {tmp_path / "asked"}')
    done = script(SHELL["Slurm"], SLURMD_NODENAME="node7")
    assert done.returncode == code
    assert (tmp_path / "asked").exists() is drained
    if drained:
        asked = (tmp_path / "asked").read_text().splitlines()
        assert asked == ["update", "NodeName=node7", "State=DRAIN", asked[-1]]
        assert asked[-1] == "Reason=workbench: the driver is too old"


def test_the_collector_gets_a_file_that_it_can_read(script, earlier_run, tmp_path) -> None:
    folder = tmp_path / "collector"
    folder.mkdir()
    done = script(SHELL["cron and the textfile collector"], TEXTFILE_FOLDER=str(folder))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "measured").read_text().startswith("--quick --output ")
    (file,) = folder.iterdir()
    assert file.name == "workbench.prom" and file.stat().st_mode & 0o444 == 0o444
    assert {"workbench_pick", "workbench_lead_ratio"} <= {
        family.name for family in prometheus(file.read_text())
    }
