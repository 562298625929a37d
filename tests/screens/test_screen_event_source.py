"""Where events come from: real child processes."""

import asyncio
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from screens.state.event_source import EngineSource, EventSourceError, _decode
from workbench.records import events as ev

# A stand-in for the engine; each test says how it goes on.
ENGINE = """
import json, os, signal, subprocess, sys, time
def say(**event):
    print(json.dumps(event), flush=True)
def heard():
    return json.loads(sys.stdin.readline() or '{{"control": "gone"}}')["control"]
def finish(status="done", code=0):
    say(event="RunFinished", at_s=2.0, status=status, finished_at="", duration_s=2.0,
        exit_code=code)
say(event="StatusChanged", at_s=1.0, status="running")
{body}
"""


@pytest.fixture
def engine(tmp_path: Path) -> object:
    def make(body: str) -> EngineSource:
        script = tmp_path / "engine.py"
        script.write_text(ENGINE.format(body=textwrap.dedent(body)))
        return EngineSource([sys.executable, "-S", str(script)])

    return make


async def collect(feed: EngineSource) -> list[ev.AnyEvent]:
    return [event async for event in feed.events()]


async def test_events_of_a_child_arrive_in_order(engine) -> None:
    feed = engine("say(event='StatusChanged', at_s=1.5, status='paused')\nfinish()")
    found = await collect(feed)
    await feed.close()
    assert [type(event).__name__ for event in found] == [
        "StatusChanged",
        "StatusChanged",
        "RunFinished",
    ]


async def test_an_engine_that_was_asked_the_impossible_says_so_in_its_last_line(engine) -> None:
    feed = engine(
        """
        finish("failed", 1)
        print("    0.4 s  failed", file=sys.stderr)
        print("workbench: bad.onnx: no ONNX model", file=sys.stderr)
        sys.exit(2)
        """
    )
    with pytest.raises(EventSourceError, match=r"^bad\.onnx: no ONNX model$"):
        await collect(feed)
    await feed.close()


async def test_a_request_that_is_refused_before_the_engine_begins_is_no_dead_engine() -> None:
    refuse = "import sys; print('workbench: there is no file x.py', file=sys.stderr); sys.exit(2)"
    feed = EngineSource([sys.executable, "-S", "-c", refuse])
    with pytest.raises(EventSourceError, match=r"^there is no file x\.py$") as caught:
        await collect(feed)
    assert caught.value.code == 2
    await feed.close()


async def test_control_words_reach_the_child_as_lines(engine) -> None:
    feed = engine("say(event='StatusChanged', at_s=1.5, status=heard())\nfinish(heard())")
    found = []
    async for event in feed.events():
        found.append(event)
        feed.send({1: "pause", 2: "cancel"}.get(len(found), ""))
    await feed.close()
    assert [event.status for event in found] == ["running", "pause", "cancel"]


async def test_what_is_said_before_the_child_is_there_reaches_it_too(engine) -> None:
    feed = engine("finish(heard(), 130)")
    feed.send("cancel")
    found = await collect(feed)
    await feed.close()
    assert found[-1].status == "cancel"


async def test_a_child_that_dies_is_reported_with_its_last_words(engine) -> None:
    feed = engine("print('out of luck', file=sys.stderr, flush=True)\nos.kill(os.getpid(), 9)")
    with pytest.raises(EventSourceError, match="killed by SIGKILL") as caught:
        await collect(feed)
    assert caught.value.log_tail == ("out of luck",)
    assert "workbench open last" in caught.value.remedy
    await feed.close()


async def test_a_child_that_never_spoke_points_at_its_log() -> None:
    feed = EngineSource([sys.executable, "-S", "-c", "raise SystemExit('no such device')"])
    with pytest.raises(EventSourceError, match="exit code 1") as caught:
        await collect(feed)
    assert caught.value.log_tail == ("no such device",)
    assert "the log below says why" in caught.value.remedy
    await feed.close()


async def test_a_program_that_does_not_exist_is_one_line() -> None:
    feed = EngineSource(["/nonexistent/engine"])
    with pytest.raises(EventSourceError, match="could not be started"):
        await collect(feed)
    await feed.close()


async def test_a_grandchild_that_holds_the_pipe_does_not_hide_a_death(engine, tmp_path) -> None:
    start = "print(subprocess.Popen(['sleep', '1000']).pid, file=open('{0}/pid', 'w'), flush=True)"
    feed = engine(f"{start.format(tmp_path)}\nos._exit(3)")
    with pytest.raises(EventSourceError, match="exit code 3"):
        await collect(feed)
    await feed.close()
    grandchild = psutil.Process(int((tmp_path / "pid").read_text()))
    assert grandchild.name() == "sleep", "it still holds the pipe"
    grandchild.kill()


async def test_a_stray_line_becomes_a_warning_and_the_run_goes_on(engine) -> None:
    feed = engine("print('Falling back to CPU', flush=True)\nfinish()")
    found = await collect(feed)
    await feed.close()
    assert isinstance(found[1], ev.WarningRaised)
    assert "Falling back to CPU" in found[1].warning.message
    assert isinstance(found[2], ev.RunFinished)


async def test_a_very_long_line_is_one_event(engine) -> None:
    feed = engine("say(event='StatusChanged', at_s=1.0, status='x' * 3_000_000)\nfinish()")
    found = await collect(feed)
    await feed.close()
    assert len(found[1].status) == 3_000_000


async def test_closing_lets_a_child_write_its_partial_result(engine, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    feed = engine(
        "signal.pthread_sigmask(signal.SIG_BLOCK, [15])\n"
        "heard()\n"
        "if signal.sigtimedwait([15], 0.3) is None:\n"
        f"    open({str(kept)!r}, 'w').write('partial')\n"
        "finish()"
    )
    stream = feed.events()
    await anext(stream)
    await feed.close()
    assert kept.read_text() == "partial"
    await stream.aclose()


async def test_a_child_that_ignores_everything_is_killed(engine, monkeypatch) -> None:
    monkeypatch.setattr("screens.state.event_source.CANCEL_S", 0.3)
    monkeypatch.setattr("screens.state.event_source.TERMINATE_S", 0.3)
    feed = engine(
        "signal.signal(15, signal.SIG_IGN)\n"
        "say(event='StatusChanged', at_s=1.5, status='deaf')\n"
        "while True: signal.pause()"
    )
    stream = feed.events()
    await anext(stream)
    await anext(stream)
    process = feed._process
    feed.send("cancel")
    await asyncio.gather(feed.close(), feed.close())
    assert process.returncode == -9
    await stream.aclose()


@pytest.mark.parametrize(
    "line",
    [b"hello\n", b"\xff\n", b"[" * 100_000, b"\x1b[31mred\n"],
    ids=lambda line: repr(line[:20]),
)
def test_a_stray_line_is_a_warning_and_cannot_steer_the_terminal(line: bytes) -> None:
    event = _decode(line)
    assert isinstance(event, ev.WarningRaised)
    assert event.warning.code == "stray_output" and event.warning.message.isprintable()
