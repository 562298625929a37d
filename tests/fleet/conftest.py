"""A real Slurm and a real sshd on the loopback, and launchers in processes of their own."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import support

HERE = Path(__file__).resolve().parent
LAB = HERE / "slurm_lab.sh"
STUB = HERE / "stub_python"
SSH_PORT = 26890


@pytest.fixture(scope="session")
def lab_folder() -> Path:
    """Where the packages were unpacked by `make test-fleet`."""
    return Path(os.environ["FLEET_LAB"]).absolute()  # sshd runs itself again


@pytest.fixture(scope="session")
def slurm(lab_folder: Path) -> Iterator[dict[str, str]]:
    """The variables that Slurm's commands need."""
    subprocess.run([LAB, "down", lab_folder], check=True)
    up = subprocess.run([LAB, "up", lab_folder], capture_output=True, text=True, timeout=60)
    assert up.returncode == 0, up.stderr
    try:
        yield {**os.environ, **dict(line.split("=", 1) for line in up.stdout.splitlines())}
    finally:
        subprocess.run([LAB, "down", lab_folder], check=True)


class Fleet:
    """Runs `workbench fleet` with its folder, and looks at what is in there."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = {
            **environment,
            "PYTHONPATH": str(HERE.parents[1]),
            "WORKBENCH_WORKLOADS": str(HERE.parent / "fixtures" / "workloads"),
            "XDG_STATE_HOME": str(folder.parent / "state"),
        }

    def start(self, *arguments: str, **extra: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "workbench", "fleet", "run", "--into", str(self.folder)]
        return subprocess.Popen(
            [*command, "--every", "1", *arguments],
            env={**self.environment, **extra},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, python: Path = STUB, **extra: str) -> tuple[int, str]:
        """The exit code and stderr of a launcher that starts a fleet."""
        started = self.start("--quick", "--python", str(python), *arguments, **extra)
        return self.end(started)

    def end(self, started: subprocess.Popen[str]) -> tuple[int, str]:
        out, err = started.communicate(timeout=90)
        assert out == ""
        return started.returncode, err

    def go_on(self) -> tuple[int, str]:
        return self.end(self.start())

    def job(self, name: str) -> Path:
        return self.folder / "jobs" / name

    def slurm(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=True, timeout=30
        )
        return done.stdout


def until(started: subprocess.Popen[str], text: str) -> str:
    """Read the launcher's stderr up to the line with this text."""
    seen = ""
    for line in started.stderr:
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"no {text!r} in:\n{seen}")


@pytest.fixture
def fleet(slurm: dict[str, str], tmp_path: Path) -> Iterator[Fleet]:
    """A fleet on Slurm, whose jobs and nodes are in order again afterwards."""
    made = Fleet(tmp_path / "fleet", slurm)
    yield made
    made.slurm("scancel", "--me")
    # The next test needs free nodes.
    support.until(lambda: not made.slurm("squeue", "--me", "--noheader"))


@pytest.fixture(scope="session")
def sshd(lab_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A real sshd on the loopback, in an environment whose `ssh` has the right key.

    As root it needs a user `sshd` and /run/sshd, which a mount namespace adds for it alone.
    """
    here = tmp_path_factory.mktemp("ssh")
    for name in ("host", "key", "other"):
        subprocess.run(
            ["ssh-keygen", "-q", "-N", "", "-t", "ed25519", "-f", here / name], check=True
        )
    (here / "authorized").write_bytes((here / "key.pub").read_bytes())
    (here / "passwd").write_text(
        Path("/etc/passwd").read_text() + "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n"
    )
    (here / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1\nPort {SSH_PORT}\nHostKey {here}/host\nUsePAM no\n"
        f"AuthorizedKeysFile {here}/authorized\nStrictModes no\nPidFile none\n"
        "KbdInteractiveAuthentication no\nPasswordAuthentication yes\nPermitRootLogin yes\n"
    )
    (here / "ssh_config").write_text(
        f"Host locked\n  IdentityFile {here}/other\nHost lab desk\n  IdentityFile {here}/key\n"
        f"Host *\n  HostName 127.0.0.1\n  Port {SSH_PORT}\n  IdentitiesOnly yes\n"
        f"  StrictHostKeyChecking no\n  UserKnownHostsFile {here}/known\n  LogLevel ERROR\n"
    )
    wrapper = here / "ssh"
    wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {here}/ssh_config "$@"\n')
    wrapper.chmod(0o755)
    installed = Path("/usr/sbin/sshd")
    root = lab_folder / "root"
    binary = installed if installed.exists() else root / "usr" / "sbin" / "sshd"
    run = f"exec {binary} -D -e -f {here}/sshd_config"
    if os.geteuid() == 0:
        mounts = (
            f"mount --bind {here}/passwd /etc/passwd; mount -t tmpfs none /run; mkdir /run/sshd"
        )
        command = ["unshare", "--mount", "sh", "-c", f"{mounts}; chmod 755 /run/sshd; {run}"]
    else:
        command = ["sh", "-c", run]
    libraries = root / "usr" / "lib" / f"{os.uname().machine}-linux-gnu"
    with (here / "log").open("wb") as log:
        daemon = subprocess.Popen(
            command, stderr=log, env={**os.environ, "LD_LIBRARY_PATH": str(libraries)}
        )
    said = (here / "log").read_text
    support.until(lambda: "Server listening" in said() or daemon.poll() is not None, 10)
    assert daemon.poll() is None, said()
    yield {**os.environ, "PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}
    daemon.terminate()
    daemon.wait(10)


@pytest.fixture
def hosts(sshd: dict[str, str], tmp_path: Path) -> Fleet:
    """A fleet on hosts."""
    return Fleet(tmp_path / "fleet", sshd)


PRINTS = """
import json, sys
from importlib.metadata import distributions
import dependency
if sys.argv[1] == "open":
    print(open({document!r}).read())
else:
    names = {{each.name for each in distributions()}} - {{"pip", "setuptools"}}
    print(json.dumps({{"checks": [], "installed": sorted(names)}}))
"""


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A bundle of two wheels: a small program in the place of workbench, and what it needs."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    document = HERE.parent / "fixtures" / "documents" / "advise-prices.json"
    main = PRINTS.format(document=str(document))
    needs = "Requires-Dist: dependency\n"
    for name, file, text, more in (
        ("cpu-gpu-workbench", "workbench/__main__.py", main, needs),
        ("dependency", "dependency.py", "", ""),
    ):
        stem = f"{name.replace('-', '_')}-1"
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            about = f"{stem}.dist-info"
            wheel.writestr(file, text)
            metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{more}"
            wheel.writestr(f"{about}/METADATA", metadata)
            tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            wheel.writestr(f"{about}/WHEEL", tags)
            wheel.writestr(f"{about}/RECORD", "")
    return folder


@pytest.fixture
def reads() -> Callable[[subprocess.Popen[str], str], str]:
    return until
