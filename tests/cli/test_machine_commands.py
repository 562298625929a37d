"""`doctor` and `watch`, as a user runs them."""

import getpass
import json
import platform
import signal
import subprocess
import sys

import pytest
from stub_driver import StubDriver

from workbench.records.machine import Machine, Software


def test_the_doctor_tries_the_stack_and_names_nobody(cli) -> None:
    done = cli("doctor", "--json")
    found = json.loads(done.stdout)
    by_name = {check["name"]: check["status"] for check in found["checks"]}
    assert by_name["torch"] == by_name["onnxruntime"] == "ok"
    assert done.returncode == ("fail" in by_name.values())
    assert {"cores", "memory", "environment", "python", "driver"} <= set(by_name)
    assert [level["name"] for level in found["stack"]][:2] == ["python", "torch"]
    assert set(found["machine"]) == set(Machine.__struct_fields__)
    assert set(found["software"]) == set(Software.__struct_fields__)
    for private in {platform.node(), getpass.getuser()} - {"root", "host", "user"}:
        assert private not in done.stdout.split('"')


def test_the_doctor_draws_the_stack_and_exits_1_where_something_cannot_work(cli, stub) -> None:
    driver = stub.environ("nvml", "cuda", NVML_STUB_ECC="3")
    settings = {name: driver[name] for name in ("LD_LIBRARY_PATH", "NVML_STUB_ECC")}
    done = cli("doctor", **settings)
    assert done.returncode == 1
    assert "The stack" in done.stdout and "NVIDIA H200" in done.stdout
    assert "3 uncorrected memory errors" in done.stdout
    assert done.stderr == ""


def test_watch_streams_one_object_a_line(cli, stub: StubDriver) -> None:
    driver = stub.environ("nvml", "cuda")
    command = ("watch", "--json", "--count", "3", "--every", "0.5")
    done = cli(*command, LD_LIBRARY_PATH=driver["LD_LIBRARY_PATH"])
    assert done.returncode == 0, done.stderr
    looks = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(looks) == 3
    assert all(look["host"]["memory_available_bytes"] for look in looks)
    assert all(look["gpus"][0]["power_w"] == 76.5 for look in looks)


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--count", "99"), 130)])
def test_watch_without_a_terminal_is_text_and_ends_well_unless_it_owes_more(
    environment, options: tuple[str, ...], code: int
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "workbench", "watch", "--every", "0.5", *options],
        env={**environment, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    head = [process.stdout.readline() for _ in range(2)]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert head[0].startswith("cpu: ") and "cpu " in head[1]
    assert (process.returncode, errors) == (code, "")
