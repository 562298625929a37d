"""Runs as lists of events, the same at every call: what the screens are shown in tests.

Times are made up but plausible; see `recorder` for how the rest follows from them.
"""

from __future__ import annotations

from collections.abc import Sequence

import recorded_machines as machines
from recorded_scenarios import SCENARIOS, Entry, Scenario
from recorder import Recorder, unanswered

from workbench.records import events as ev
from workbench.records.machine import Machine, Software
from workbench.records.reason import Reason, Warning

UNSTABLE = Warning(
    code="busy_machine",
    message="another process uses 1.9 cores",
    remedy="rerun with it stopped",
    subject="branching",
)
CPU_BUILD = Warning(
    code="cpu_build",
    message="an NVIDIA GPU is here, but this torch is a CPU build",
    remedy="install a CUDA build: pip install torch --index-url https://download.pytorch.org/whl/cu130",
)


def entries_of(scenario: Scenario, device: str | None) -> dict[str, Entry]:
    """The candidates by case id; `device` is the name of the GPU, None without one."""
    return {scenario.case(entry).id: entry for entry in scenario.entries_on(device)}


def _run(
    device: str | None,
    machine: tuple[Machine, Software],
    warnings: Sequence[Warning] = (),
    *,
    full_rows: int = len(SCENARIOS),
    rounds_of_last: int = 0,
) -> Recorder:
    """`full_rows` rows with a verdict, then one of `rounds_of_last` rounds without."""
    recorder = Recorder()
    recorder.begin(*machine, warnings)
    rows = [(scenario, entries_of(scenario, device)) for scenario in SCENARIOS]
    for scenario, entries in rows:
        recorder.plan(scenario, entries)
    known: set[str] = set()
    for number, (scenario, entries) in enumerate(rows):
        if number > full_rows or (number == full_rows and not rounds_of_last):
            break
        started = ev.RaceStarted(at_s=recorder.passed(0.05), scenario=scenario.id, share_s=9.4)
        recorder.events.append(started)
        recorder.prepare(scenario, entries, known)
        if number == full_rows:
            recorder.race(scenario, entries, rounds_of_last)
            break
        recorder.race(scenario, entries)
        recorder.decide(scenario, entries, [UNSTABLE] if scenario.id == "branching" else [])
    return recorder


def cpu_only() -> list[ev.AnyEvent]:
    """Six rows finished on two cores, no GPU anywhere."""
    return _run(None, machines.cpu_server()).finish()


def h200() -> list[ev.AnyEvent]:
    """Six rows finished on an EPYC with an H200: all kinds of answers."""
    return _run("cuda:0", machines.gpu_server()).finish()


def midway() -> list[ev.AnyEvent]:
    """The same machine while the fifth row is raced: two of seven candidates are left."""
    return _run("cuda:0", machines.gpu_server(), full_rows=4, rounds_of_last=5).events


def training_midway() -> list[ev.AnyEvent]:
    """The first row is raced: loss curves grow."""
    return _run("cuda:0", machines.gpu_server(), full_rows=0, rounds_of_last=6).events


def cancelled() -> list[ev.AnyEvent]:
    """Stopped by the user in the third row; of the others it is said that they were not reached."""
    recorder = _run("cuda:0", machines.gpu_server(), full_rows=2, rounds_of_last=3)
    stopped = Reason("cancelled", "the run was cut short")
    for scenario in SCENARIOS[2:]:
        for case_id in entries_of(scenario, "cuda:0"):
            if case_id in recorder.finished:
                continue
            recorder.events.append(
                ev.CaseFinished(
                    at_s=recorder.at_s,
                    case=case_id,
                    scenario=scenario.id,
                    status="cancelled",
                    reason=stopped,
                )
            )
    for scenario in SCENARIOS[2:]:
        recorder.events.append(ev.VerdictReached(at_s=recorder.at_s, verdict=unanswered(scenario)))
    return recorder.finish("cancelled", 130)


def simulated() -> list[ev.AnyEvent]:
    """Six rows finished against the test device `fake:0`."""
    return _run("fake:0", machines.fake_server()).finish()


def warned() -> list[ev.AnyEvent]:
    """Only detection, with a GPU that this torch cannot use."""
    machine, _ = machines.gpu_server()
    _, software = machines.cpu_server()
    recorder = Recorder()
    recorder.begin(machine, software, [CPU_BUILD])
    return recorder.events


def case_ids(events: Sequence[ev.AnyEvent], scenario: str) -> list[str]:
    """The case ids of one planned row."""
    plans = (event for event in events if isinstance(event, ev.RacePlanned))
    return [case.id for plan in plans if plan.scenario == scenario for case in plan.cases]
