"""The TUI and `--json` say the same of the same events, while they come and afterwards."""

import json

import pytest
from stage import JOURNALS, replayed

from workbench.export.json import document_parts
from workbench.records import events as ev
from workbench.report.report import Report


@pytest.mark.parametrize("journal", ["advise-simulated-gpu", "run-sweep"])
async def test_the_tui_holds_the_document_that_json_prints(journal: str) -> None:
    lines = (JOURNALS / f"{journal}.jsonl").read_bytes().splitlines()
    events = [ev.decode(line) for line in lines]
    app = replayed(events)
    async with app.run_test() as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        held = json.loads("".join(document_parts(app.session.report)))
    assert held == json.loads("".join(document_parts(Report.of(events))))
    assert held["run"]["status"] == "done"
