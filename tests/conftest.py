"""Fixtures for all tests: a state folder, the test workload and real child processes."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import scenes
import stub_driver
from hypothesis import HealthCheck, settings
from support import WORKLOADS, Cli, LiveEngine

from workbench.contract import LEAST_CAPABILITY
from workbench.records.events import RunStarted, encode

HERE = Path(__file__).resolve().parent

# A shell that runs the tests in its background ignores SIGINT, and nohup ignores SIGHUP: child
# processes would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # as in every worker, before onnxruntime is imported
os.environ.pop("OMP_NUM_THREADS", None)  # or the user's code as written would have other threads

# Property tests judge results, not speed: on a busy machine any example may be slow.
settings.register_profile("workbench", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("workbench")


def pytest_collection_finish() -> None:
    """Later collections of garbage pass over the thousands of tests; each would take a second."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests marked `cuda` run where torch finds a GPU that has their precision."""
    if item.get_closest_marker("cuda") is not None:
        import torch

        if not torch.cuda.is_available():
            pytest.skip("torch finds no CUDA device here")
        given = item.callspec.params if hasattr(item, "callspec") else {}
        precision = given.get("precision") or getattr(given.get("variant"), "precision", None)
        if torch.cuda.get_device_capability() < LEAST_CAPABILITY.get(precision, (0, 0)):
            pytest.skip(f"this GPU has no {precision}")


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The developer's choices apply to no test, and no test touches the developer's runs."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A child's environment: nothing it writes leaves `tmp_path`."""
    return {
        **os.environ,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "WORKBENCH_WORKLOADS": str(WORKLOADS),
        "PYTHONPATH": str(HERE.parent),
    }


@pytest.fixture
def cli(environment: dict[str, str]) -> Cli:
    return Cli(environment)


@pytest.fixture(scope="session")
def stub(tmp_path_factory: pytest.TempPathFactory) -> stub_driver.StubDriver:
    """Driver libraries that a child process loads as the real ones."""
    if stub_driver.compiler() is None:
        pytest.skip("no C compiler for the stub driver")
    return stub_driver.build(tmp_path_factory.getbasetemp() / "stub_driver")


@pytest.fixture
def earlier_run(cli: Cli) -> Path:
    """The journal of a finished run, as `open last` finds it."""
    events = scenes.cpu_only()
    assert isinstance(events[0], RunStarted)
    cli.runs.mkdir(parents=True)
    file = cli.runs / f"{events[0].id}.jsonl"
    file.write_bytes(b"".join(encode(event) + b"\n" for event in events))
    return file


@pytest.fixture
def live_engine(environment: dict[str, str]) -> Iterator[object]:
    """Start engines that are certain to be gone when the test ends."""
    engines: list[LiveEngine] = []

    def start(*arguments: str, **popen: object) -> LiveEngine:
        engines.append(LiveEngine(environment, *arguments, **popen))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()
