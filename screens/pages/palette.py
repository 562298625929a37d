"""The command palette's entries: screens, rows, workloads, recent runs, formats and themes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from workbench import catalog
from workbench.contract import WorkloadError
from workbench.export.formats import DOCUMENT, FILES
from workbench.export.view.runs import command, moment
from workbench.records.comparison import RunSummary
from workbench.records.errors import JournalError
from workbench.report.history import matching, refreshed
from workbench.text.sanitize import shown

from ..state.threads import in_thread
from ..theme import themes

RUNS = 20


class Entry(NamedTuple):
    text: str
    help: str
    act: Callable[[], Any]


class Entries(Provider):
    """Everything that has a name and can be shown, written or started now."""

    _runs: Sequence[tuple[Path, RunSummary]] = ()  # the newest

    async def startup(self) -> None:
        if cast(Any, self.app).check_action("new", ()):  # reading would disturb a run
            with suppress(JournalError):  # the Runs screen says why
                kept = await in_thread(refreshed)  # the first time there may be thousands
                self._runs = list(islice(matching(kept), RUNS))
        self._found = list(self._entries())

    async def discover(self) -> Hits:
        for entry in self._found:
            yield DiscoveryHit(Content(entry.text), entry.act, entry.text, help=entry.help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for entry in self._found:
            if (score := matcher.match(entry.text)) > 0:
                text = matcher.highlight(entry.text)
                yield Hit(score, text, entry.act, entry.text, help=entry.help)

    def _entries(self) -> Iterator[Entry]:
        app = cast(Any, self.app)
        for name, key in app.tabs.items():
            show = partial(app.run_action, f"switch_mode('{name}')")
            yield Entry(f"Screen: {name}", f"key {key}", show)
        forms = {**FILES, DOCUMENT: "The JSON document, which `workbench compare` takes."}
        for form, text in forms.items() if app.check_action("export", ()) else ():
            write = partial(app.export, app.session.report, form)
            yield Entry(f"Export: {form}", text, write)
        for row in app.session.report.asked_rows:
            show = partial(app.show_row, row.plan.scenario)
            yield Entry(f"Row: {shown(row.title)}", "show its answer", show)
        if app.check_action("new", ()):
            yield from self._of_new_runs(app)
        for name in themes(app):
            yield Entry(f"Theme: {name}", "and remember it", partial(app.choose_theme, name))

    def _of_new_runs(self, app: Any) -> Iterator[Entry]:
        """The entries that set up or open another run, which is possible between runs only."""
        with suppress(WorkloadError):  # the folder of the user's workloads cannot be read
            for name in catalog.files():
                request = app.request_for(workloads=(name,))
                yield Entry(f"Workload: {name}", "set up a run", partial(app.action_new, request))
        for path, run in self._runs:
            text = f"Run: {moment(run)} {command(run)}"
            yield Entry(text, run.status, partial(app.read_run, path, app.show_run))
