"""The TUI and `--json` say the same of the same events."""

import json

from stage import replayed
from support import budget

from workbench.export.json import document_parts
from workbench.records import events as ev


async def test_the_tui_holds_the_document_that_json_prints(cli) -> None:
    printed = cli("run", "spin", *budget(4), "--json")
    assert printed.returncode == 0
    (journal,) = cli.runs.glob("*.jsonl")
    events = [ev.decode(line) for line in journal.read_bytes().splitlines()]
    app = replayed(events, replay=True)
    async with app.run_test() as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        held = json.loads("".join(document_parts(app.session.report)))
    assert held == json.loads(printed.stdout)
