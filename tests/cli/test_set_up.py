"""`make run` on a machine that lacks something: it works, or one line says what is missing.

Make, the script and the shell are real; Python, venv and pip are one shell script that behaves as
the test asks.
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

DRIVER = Path("/proc/driver/nvidia/version")
ROOT = Path(__file__).resolve().parents[2]
PARTS = ("Makefile", "pyproject.toml", "constraints.txt", ".ci")
TOOLS = ("cat", "cksum", "cp", "flock", "grep", "head", "ls", "make", "mkdir", "rm", "sed", "sh")
TOOLS += ("sleep", "tail", "touch", "uname")
FOLDERS = ("plain", "two words", "Käse $HOME `id` #1", 'it\'s "quoted"', "a:b", "-n")
FAKE = r"""#!/bin/sh
echo "$*" >>"$CALLS"
for last; do :; done
case "$*" in
*print*) echo "${VERSION:-3.11}" ;;
*"import ensurepip"*) exit "${NO_ENSUREPIP:-0}" ;;
*base_prefix*) ;;
*version_info*) [ -z "$VERSION" ] ;;
*importlib.metadata*) [ -e "${0%/*}/pip" ] ;;
*"-m ensurepip"*) touch "${0%/*}/pip" ;;
"-m venv"*)
  [ -z "$VENV_SAYS" ] || { echo "$VENV_SAYS"; exit 1; }
  mkdir -p "$last/bin" && touch "$last/pyvenv.cfg" && cp "$0" "$last/bin/python" ;;
"-m pip"*) sleep "${PIP_TAKES_S:-0}"; [ -z "$PIP_SAYS" ] || { echo "$PIP_SAYS"; exit 1; } ;;
*bin/workbench*) printf '%s\n' "$@" ;;
esac
"""


@dataclass
class Checkout:
    """A fresh checkout on a machine with few programs."""

    folder: Path
    programs: Path
    calls: Path

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["make", "run", *arguments],
            cwd=self.folder,
            env={
                "PATH": str(self.programs),
                "CALLS": str(self.calls),
                "EXTRA": "cpu",  # whatever machine the tests run on
                **environment,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **environment: str) -> tuple[int, str, list[str]]:
        """(exit code, stdout, lines on stderr other than make's own and the announcement)."""
        process = self.start(*arguments, **environment)
        stdout, stderr = process.communicate(timeout=60)
        lines = [line for line in stderr.splitlines() if not line.startswith("make: ***")]
        return process.returncode, stdout, [line for line in lines if "a few minutes" not in line]

    def asked(self, words: str) -> int:
        """How often Python was called with these words since the last time."""
        calls = self.calls.read_text() if self.calls.exists() else ""
        self.calls.unlink(missing_ok=True)
        return calls.count(words)


@pytest.fixture
def checkout(tmp_path: Path, request: pytest.FixtureRequest) -> Checkout:
    folder = tmp_path / getattr(request, "param", "checkout")
    folder.mkdir()
    for name in PARTS:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    programs = tmp_path / "programs"
    programs.mkdir()
    for tool in TOOLS:
        if found := shutil.which(tool):
            (programs / tool).symlink_to(found)
    (programs / "python3").write_text(FAKE)
    (programs / "python3").chmod(0o755)
    return Checkout(folder, programs, tmp_path / "calls")


@pytest.mark.parametrize("checkout", FOLDERS, indirect=True)
def test_the_first_run_sets_up_and_the_next_does_not(checkout: Checkout) -> None:
    arguments = ("ARGS=--set 'a=b c'",)
    expected = (0, ".venv/bin/workbench\n--set\na=b c\n", [])
    assert checkout.run(*arguments) == expected
    assert checkout.asked("-m pip") == 2
    assert checkout.run(*arguments) == expected
    assert checkout.asked("-m pip") == 0


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        ({"PYTHON": "python9"}, "there is no python9: install Python 3.11 or newer"),
        ({"VERSION": "3.9"}, "python3 is Python 3.9: install 3.11 or newer"),
        ({"NO_ENSUREPIP": "1"}, "apt install python3.11-venv"),
        ({"VENV_SAYS": "Error: [Errno 30] Read-only"}, "make run VENV=/tmp/workbench-venv"),
        ({"VENV": "Makefile/x"}, "make run VENV=/tmp/workbench-venv"),
        ({"VENV": ".ci"}, ".ci is a folder of other files"),
        ({"PIP_SAYS": "ERROR: [Errno 28] No space left on device"}, "the disk is full"),
        ({"PIP_SAYS": "NewConnectionError(...)\nERROR: No matching"}, "needs a network"),
        (
            {"PIP_SAYS": "ERROR: No matching distribution found for torch==2.13.0"},
            "pip finds no torch==2.13.0",
        ),
        ({"PIP_SAYS": "a\nerror: odd\nb"}, "error: odd (log: .venv/setup.log)"),
        ({"PIP_SAYS": "a"}, "pip failed (log: .venv/setup.log)"),
    ],
)
def test_what_is_missing_is_one_line(checkout: Checkout, environment, line: str) -> None:
    code, stdout, lines = checkout.run(**environment)
    assert code != 0
    assert stdout == ""
    assert len(lines) == 1
    assert line in lines[0]
    assert checkout.run()[0] == 0  # what was left behind is in nothing's way


def test_a_missing_python_names_one_that_is_there(checkout: Checkout) -> None:
    (checkout.programs / "python3").rename(checkout.programs / "python3.12")
    code, _, lines = checkout.run()
    assert code != 0
    assert lines[0].endswith("make run PYTHON=python3.12")
    assert checkout.run("PYTHON=python3.12")[0] == 0


def test_a_copied_checkout_is_set_up_where_it_is(checkout: Checkout) -> None:
    checkout.run()
    checkout.folder = checkout.folder.rename(checkout.folder.with_name("moved"))
    checkout.asked("")
    assert checkout.run()[0] == 0
    assert checkout.asked("--editable") == 1


def test_what_an_interrupted_set_up_left_is_installed_again(checkout: Checkout) -> None:
    checkout.run()
    (checkout.folder / ".venv" / ".ready-cpu").unlink()
    (checkout.folder / ".venv" / "bin" / "pip").unlink()
    site = checkout.folder / ".venv" / "lib" / "python3.11" / "site-packages"
    for name in ("half", "whole"):
        (site / f"{name}.dist-info").mkdir(parents=True)
    (site / "whole.dist-info" / "INSTALLER").touch()
    checkout.asked("")
    assert checkout.run()[0] == 0
    assert [path.name for path in site.iterdir()] == ["whole.dist-info"]
    assert checkout.asked("-m ensurepip") == 1


@pytest.mark.parametrize(
    ("smi", "extra", "processor", "installed"),
    [
        ("exit 0", "", "x86_64", ".[gpu]"),
        ("exit 0", "", "aarch64", ".[gpu]"),
        ("exit 0", "", "aarch64 5.15-tegra", ".[cpu]"),  # PyPI has no other
        ("exit 0", "", "ppc64le", ".[cpu]"),
        ("exit 9", "", "x86_64", ".[cpu]"),
        ("exit 0", "cpu", "x86_64", ".[cpu]"),
        ("exit 9", "gpu", "aarch64", ".[gpu]"),
    ],
)
def test_a_driver_that_answers_chooses_the_gpus_onnx_runtime_unless_told_otherwise(
    checkout: Checkout, smi: str, extra: str, processor: str, installed: str
) -> None:
    if DRIVER.exists() and (smi, extra) == ("exit 9", ""):
        pytest.skip("this machine has a driver of its own")
    for name, does in (("nvidia-smi", f"echo GPU 0; {smi}"), ("uname", f"echo {processor}")):
        (checkout.programs / name).unlink(missing_ok=True)
        (checkout.programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (checkout.programs / name).chmod(0o755)
    code, stdout, lines = checkout.run(EXTRA=extra)
    assert (code, stdout, lines) == (0, ".venv/bin/workbench\n", [])
    assert checkout.asked(f"--editable {installed}") == 1
    assert checkout.run(EXTRA=extra)[0] == 0
    assert checkout.asked("-m pip") == 0


@pytest.mark.skipif(DRIVER.exists(), reason="this machine has a driver of its own")
def test_without_a_driver_it_is_the_cpus(checkout: Checkout) -> None:
    assert checkout.run(EXTRA="")[0] == 0
    assert checkout.asked("--editable .[cpu]") == 1


def test_the_other_onnx_runtime_goes_first(checkout: Checkout) -> None:
    """Both install the same import package: the one that stays would lose its files."""
    checkout.run(EXTRA="cpu")
    site = checkout.folder / ".venv" / "lib" / "python3.11" / "site-packages"
    (site / "onnxruntime-1.31.1.dist-info").mkdir(parents=True)
    (site / "onnxruntime-1.31.1.dist-info" / "INSTALLER").touch()
    checkout.asked("")
    assert checkout.run(EXTRA="gpu")[0] == 0
    calls = checkout.calls.read_text()
    uninstalls = calls.index("uninstall --yes onnxruntime onnxruntime-gpu")
    assert uninstalls < calls.index("--editable .[gpu]")
    checkout.asked("")
    checkout.run(EXTRA="cpu")
    assert checkout.asked("--editable .[cpu]") == 1, "what was ready for the CPU is no more"


def test_a_machine_without_a_wheel_for_its_gpu_is_led_to_the_cpu(checkout: Checkout) -> None:
    says = "ERROR: No matching distribution found for onnxruntime-gpu==1.31.1"
    code, _, lines = checkout.run(EXTRA="gpu", PIP_SAYS=says)
    assert code != 0
    assert "pip finds no onnxruntime-gpu==1.31.1" in lines[0]
    assert "make run EXTRA=cpu" in lines[0]


def test_another_extra_is_refused(checkout: Checkout) -> None:
    code, _, lines = checkout.run(EXTRA="tpu")
    assert code != 0
    assert lines == ["setup: EXTRA is cpu or gpu, not tpu"]


@pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock(1)")
def test_of_two_at_once_one_sets_up(checkout: Checkout) -> None:
    both = [checkout.start(PIP_TAKES_S="0.2") for _ in range(2)]
    assert [process.communicate(timeout=60)[0] for process in both] == [".venv/bin/workbench\n"] * 2
    assert checkout.asked("--editable") == 1


def test_clean_removes_nothing_but_a_virtual_environment(checkout: Checkout) -> None:
    mine = checkout.folder / "mine"
    mine.mkdir()
    (mine / "file").touch()
    environment = {"PATH": str(checkout.programs), "VENV": "mine"}
    subprocess.run(["make", "clean"], cwd=checkout.folder, env=environment, check=True)
    assert (mine / "file").exists()
