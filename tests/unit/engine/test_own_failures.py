"""Code that cannot be used, fails, hangs or goes on: what `advise --torch` says of it."""

from pathlib import Path
from typing import Any

import pytest
from simulated_own import DIED, SimulatedOwn, raced

from workbench.planning.questions import OwnQuestion
from workbench.planning.usage import UsageError
from workbench.pool.pool import HINTS, WorkerFailed
from workbench.records import events as ev
from workbench.records.reason import Reason
from workbench.report.report import Report
from workbench.worker.code import IMPORTING, MODULES, Code

HUNG = Reason("timeout", "no answer within 9 s", HINTS["timeout"])
RAISED = Reason("user_code", "shop.model: ValueError: no weights")


def test_a_batch_needs_a_common_axis() -> None:
    with pytest.raises(UsageError, match=r"^--batch: shop\.model:build has no batch to change"):
        raced(facts={"batch": None, "resizable": False}, batch=(4,))


def test_an_archive_of_one_size_takes_no_other() -> None:
    facts = {"name": "net.pt2", "batch": 2, "resizable": False, "of_one_size": True}
    with pytest.raises(UsageError, match=r"net\.pt2 was exported for batch 2 alone;"):
        raced(facts=facts, batch=(4,))
    assert list(Report.of(raced(facts=facts, batch=(2,))).rows) == ["own"]


def test_a_module_that_fixes_its_batch_takes_no_other() -> None:
    facts = {"name": "shop.model:build", "batch": 2, "resizable": False, "of_one_size": True}
    with pytest.raises(UsageError, match=r"shop\.model:build takes batch 2 alone$"):
        raced(facts=facts, batch=(2, 4))


def test_code_that_hangs_gets_a_remedy_that_fits() -> None:
    (candidate,) = Report.of(raced(failures={"examine": HUNG})).rows["own"].candidates
    assert candidate.reason.hint == "make it return sooner, or raise --budget"
    assert candidate.reason.message == "shop.model:build: no answer within 9 s"


def test_an_import_that_takes_too_long_is_named() -> None:
    class Importing(SimulatedOwn):
        def consult(self, request: dict[str, Any]) -> dict[str, Any]:
            Path(Code.of(request["code"]).folder, IMPORTING).touch()
            raise WorkerFailed(HUNG)

    (candidate,) = Report.of(raced(Importing)).rows["own"].candidates
    assert candidate.reason.message == "import of shop.model: no answer within 9 s"
    assert candidate.reason.hint == "let its import do less, or raise --budget"


def test_a_module_gets_its_time_after_that_of_its_script(tmp_path, monkeypatch) -> None:
    class Slow(SimulatedOwn):
        def ask(self, key: Any, deadline_s: float, kind: Any, **request: Any) -> Any:
            if request.get("question") == "examine":
                calls_s.append(deadline_s - Code.of(request["code"]).seconds)
                raise WorkerFailed(Reason("timeout", "no answer", HINTS["timeout"]))
            return super().ask(key, deadline_s, kind, **request)

    calls_s: list[float] = []
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    events = raced(Slow, budget_s=60, own=OwnQuestion("torch", "train.py"))
    assert calls_s == [pytest.approx(30.0)]  # as those of a module that a builder gives
    (candidate,) = Report.of(events).rows["own"].candidates
    assert "a bare `except:` in the script" in candidate.reason.hint


def test_a_script_that_ran_is_not_the_part_that_takes_too_long(tmp_path, monkeypatch) -> None:
    class Ran(SimulatedOwn):
        def consult(self, request: dict[str, Any]) -> dict[str, Any]:
            Path(Code.of(request["code"]).folder, MODULES).touch()
            raise WorkerFailed(HUNG)

    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    report = Report.of(raced(Ran, own=OwnQuestion("torch", "train.py")))
    (candidate,) = report.rows["own"].candidates
    words = "the calls that examine its module: no answer within 9 s"
    assert candidate.reason.message == words
    assert candidate.reason.hint == "pass a smaller batch after --, or raise --budget"


def test_a_wrong_name_is_a_usage_error() -> None:
    misnamed = Reason("bad_target", "there is no shop.model", "did you mean")
    with pytest.raises(UsageError, match=r"there is no shop.model \(did you mean\)"):
        raced(failures={"examine": misnamed})


@pytest.mark.parametrize(("reason", "named"), [(RAISED, ""), (DIED, "shop.model:build: ")])
def test_code_that_fails_is_data_and_fails_the_run(reason: Reason, named: str) -> None:
    report = Report.of(raced(failures={"examine": reason}))
    (candidate,) = report.rows["own"].candidates
    assert candidate.state == "failed"
    assert candidate.reason.message == f"{named}{reason.message}"
    assert candidate.reason.hint == reason.hint
    assert report.finished.exit_code == 1
    assert report.code is None


def test_code_that_fails_where_no_cpu_is_asked_for_failed_on_the_gpu() -> None:
    events = raced(failures={"examine": RAISED}, gpu=True, devices=("gpu",))
    report = Report.of(events)
    (candidate,) = report.rows["own"].candidates
    assert candidate.case.device == "cuda:0"


@pytest.mark.parametrize("lingers", [False, True])
def test_a_script_whose_threads_go_on_gets_another_process(lingers: bool) -> None:
    events = raced(facts={"lingers": lingers})
    until = next(n for n, e in enumerate(events) if isinstance(e, ev.CodeExamined))
    ended = [e.worker for e in events[:until] if isinstance(e, ev.WorkerEnded)]
    assert ended == ["cpu/torch"] * lingers
