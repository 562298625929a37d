"""The form for a new run: a workload, its options, and the resulting command line."""

from collections.abc import Collection
from itertools import chain, repeat
from string import ascii_lowercase, digits
from typing import ClassVar

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, Static

from workbench import catalog
from workbench.contract import WorkloadError
from workbench.export.view.spans import Text, heading
from workbench.export.view.table import Column, Line, holds, longest_that_fits
from workbench.planning.request import Request
from workbench.records.machine import Machine

from ..state.form_field import FormField
from ..state.run_form import OWN, SCENARIOS, Checked, RunForm
from ..terminal import TOO_SMALL
from ..widgets.chips import Chips
from ..widgets.drawn import Drawn
from ..widgets.keybar import OPTIONAL, KeyBar
from ..widgets.table import Table

NO_FIELD = FormField("", "", "", "")  # fills lines that show no field
_ENTRIES = {  # title and question of each entry that is not a workload
    SCENARIOS: ("The scenarios of the advisor", "Which device suits each scenario?"),
    OWN: ("A module, function or command", "Where and how should it run?"),
}
_COLUMNS = (
    Column("name", "type to find", minimum=12, maximum=24),
    Column("title", "", rank=1, minimum=24),
)
# Keys that find an entry, by the character they add.
_LETTERS = {each: each for each in ascii_lowercase + digits}
_LETTERS |= {"underscore": "_", "minus": "-", "space": " "}


KEYS = (
    ("enter", "choose the entry at the cursor; in a field, start the run"),
    ("tab", "next field; shift+tab: the previous one; up and down do the same"),
    ("left right", "in a field of choices, move; space ticks, if several may apply"),
    ("a-z 0-9", "in the list, find an entry by name or title; backspace deletes a letter"),
    ("esc", "clear the search, or leave the form"),
)


class FieldInput(Input):
    # Overrides the screen's binding, so that letters typed just before enter count.
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "submit", "Start")]

    def on_paste(self) -> None:
        self._initial_value = False  # else Textual would not scroll to the end of a first text


class FieldLine(Horizontal):
    """A label with an input and its allowed values, or with choices; reused for the fields of
    other workloads.  A widget is mounted when it is first needed, since mounting takes time."""

    def __init__(self) -> None:
        super().__init__()
        self.field = NO_FIELD
        self._label, self._allowed = Drawn(classes="label"), Drawn(classes="allowed")
        self._typed = FieldInput(compact=True, select_on_focus=False)
        self._chips = Chips()

    @property
    def control(self) -> Widget:
        """The one of its two controls that is shown."""
        return self._chips if self.field.choices else self._typed

    def show(self, field: FormField, text: str) -> None:
        self.field, self.display = field, field is not NO_FIELD
        if not self.display:
            return
        # An empty widget would take room.
        typed = {self._typed, *([self._allowed] if field.allowed else [])}
        shown = {self._label, *([self._chips] if field.choices else typed)}
        for part in (self._label, self._typed, self._allowed, self._chips):
            part.display = part in shown
            if part in shown and not part.is_attached:
                self.mount(part)
        if field.choices:
            self._chips.offer(field.choices, text, single=field.single)
            return
        with self.prevent(Input.Changed):
            self._typed.value = text
        self._typed.placeholder = field.default
        forms = [Text.of((text, "dim")) for text in (field.allowed, "")]
        self._allowed.show(lambda width: longest_that_fits(forms, width))

    def mark(self, *, is_wrong: bool) -> None:
        """Draw the label, with a mark if the field is invalid."""
        mark, style = ("!", "$error") if is_wrong else (" ", "")
        name = Content.styled(f"{mark} {self.field.label}", style)
        self._label.show(lambda width: name.truncate(width, ellipsis=True))


class Fields(VerticalScroll, can_focus=False):
    """The fields; the one with the focus stays in view when the lines below need more room."""

    def on_resize(self) -> None:
        focused = self.screen.focused
        if focused is not None and self in focused.ancestors:
            focused.scroll_visible(animate=False)


class NewRunScreen(ModalScreen[Request | None]):
    """Dismissed with the request to start, or with None."""

    CSS_PATH = "../new_run.tcss"
    AUTO_FOCUS = "Table"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (50, "-usual"), (110, "-wide")]  # noqa: RUF012
    # With priority: a key that follows at once must find the focus already moved.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,right", "choose", "Choose", key_display="enter", priority=True),
        Binding("enter", "start", "Start"),
        Binding("tab", "go(1)", "Next field", priority=True, group=OPTIONAL),
        Binding("shift+tab", "go(-1)", "Field before", show=False, priority=True),
        Binding("down", "move(1)", "Next", show=False, priority=True),
        Binding("up", "move(-1)", "Before", show=False, priority=True),
        *(
            Binding(key, f"seek({each!r})", show=False, priority=True)
            for key, each in _LETTERS.items()
        ),
        Binding("backspace", "seek", show=False, priority=True),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("escape", "leave", "Leave"),
    ]

    def __init__(
        self, before: Request, machine: Machine | None, installed: Collection[str] | None
    ) -> None:
        super().__init__()
        self._workloads, self._broken = catalog.load_all()
        loaded = {*self._workloads, *self._broken}  # a folder may change while the form is open
        self._entries = (SCENARIOS, OWN, *(name for name in catalog.files() if name in loaded))
        known = all(name in self._workloads for name in before.workloads)
        self._form = RunForm(before if known else Request(), machine, installed)
        self._checked: Checked = self._form.check()
        self._sought = ""
        self._is_due = False  # a check, once the screen is drawn

    def compose(self) -> ComposeResult:
        yield Static(TOO_SMALL, id="too-small")
        yield Drawn(id="new-title")
        with Horizontal(id="new-body"):
            yield Table(id="entries")
            with Fields(id="fields"):
                yield Drawn(id="teaches")
        with Vertical(id="new-foot"):
            yield Drawn(id="new-said")
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one("#new-title", Drawn).show(lambda width: heading("New run", width))
        self.query_one(Table).cursor = self._form.entry
        self._list()
        self._show_entry()

    def _list(self) -> None:
        """List the entries that contain the text looked for, first those whose names begin so."""
        sought, found = self._sought, []
        for entry in sorted(self._entries, key=lambda e: not self._titles(e)[0].startswith(sought)):
            name, title = self._titles(entry)
            if holds(sought, name, title):
                style = "strong" if entry in _ENTRIES else ""
                cells = {"name": Text.of((name, style)), "title": Text.of((title, "dim"))}
                found.append(Line(entry, cells))
        first = replace(_COLUMNS[0], title=f"/{sought}") if sought else _COLUMNS[0]
        table = self.query_one(Table)
        table.show((first, *_COLUMNS[1:]), found, "none: esc shows all")
        if sought and found:
            table.cursor = found[0].key

    def _titles(self, entry: str) -> tuple[str, str]:
        if entry in _ENTRIES:
            return entry or "scenarios", _ENTRIES[entry][0]
        broken = entry in self._broken
        return entry, "cannot be used" if broken else self._workloads[entry].title

    # --------------------------------------------------------- what is shown

    def _show_entry(self) -> None:
        """Show the fields of the selected entry, with earlier input."""
        form = self._form
        try:
            workload, fields = form.workload, form.fields()
        except WorkloadError as error:
            title, teaches, fields = form.entry, str(error), []
        else:
            said = (workload.title, workload.teaches) if workload else _ENTRIES[form.entry]
            title, teaches = said
        head = Content.assemble((title, "bold"), "\n", (teaches, "dim"))
        self.query_one("#teaches", Drawn).show(head.wrap)
        lines = list(self.query(FieldLine))
        if new := [FieldLine() for _ in range(len(lines), len(fields))]:
            self.query_one(Fields).mount_all(new)
        for line, field in zip([*lines, *new], chain(fields, repeat(NO_FIELD)), strict=False):
            line.show(field, form.texts.get(field.key, ""))
        self._check()

    def _check(self) -> None:
        self._is_due = False
        self._checked = self._form.check()
        wrong = None if self._checked.is_missing else self._wrong_line()
        for line in self.query(FieldLine):
            line.mark(is_wrong=line is wrong)
        self._draw_foot()

    def _wrong_line(self) -> FieldLine | None:
        """The field that the error is about, if that is known."""
        key, lines = self._checked.wrong, self.query(FieldLine)
        return next((line for line in lines if key and line.field.key == key), None)

    def _draw_foot(self) -> None:
        checked, field = self._checked, self._focused_field()
        described = Content("" if field is None else field.description)
        outlook = Content.styled(checked.error or checked.outlook, "dim")
        if checked.lacks_time:
            outlook = Content.styled(f"! {checked.outlook}", "$warning")
        if checked.error and not checked.is_missing:
            outlook = Content.styled(f"! {checked.error}", "$error")
        style = "dim" if checked.error else "$primary"
        command = Content.assemble(("$ ", "dim"), (checked.command, style))

        def make(width: int, height: int) -> list[Content]:
            """Everything if it fits; otherwise the error is cut last."""
            ending = _cut(outlook.wrap(width), height - 2, width)
            helped = described.stylize("dim").wrap(width)
            helped = _cut(helped, height - len(ending) - 1, width)
            room = height - len(ending) - len(helped)
            return [*helped, *_cut(command.wrap(width), room, width), *ending]

        said = self.query_one("#new-said", Drawn)
        said.fill(make)
        said.refresh(layout=True)  # it may need more lines than before

    def _focused_field(self) -> FormField | None:
        line = self.focused.parent if self.focused is not None else None
        return line.field if isinstance(line, FieldLine) else None

    # ------------------------------------------------------------- the keys

    @property
    def _choosing(self) -> bool:
        return isinstance(self.focused, Table)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("choose", "seek"):
            return self._choosing
        return action != "start" or not self._choosing

    def action_help(self) -> None:
        from .help import HelpScreen

        self.app.push_screen(HelpScreen(KEYS, "NewRun"))

    def action_move(self, step: int) -> None:
        if self._choosing:
            self.query_one(Table).action_move(step)
            self.on_table_moved()
        else:
            self.action_go(step)

    def action_go(self, step: int) -> None:
        """Move the focus.  Textual goes by places on the screen, which new lines still lack."""
        fields = [line.control for line in self.query(FieldLine) if line.display]
        stops = [self.query_one(Table), *fields]
        at = stops.index(self.focused) if self.focused in stops else 0
        self.set_focus(stops[(at + step) % len(stops)])

    def action_choose(self) -> None:
        self.on_table_moved()
        self.action_go(1)

    def action_seek(self, letter: str = "") -> None:
        """Add a letter to the text looked for; without `letter`, take the last one away."""
        self._seek(self._sought + letter if letter else self._sought[:-1])

    def _seek(self, text: str) -> None:
        self._sought = text
        self._list()
        self.on_table_moved()

    def on_table_moved(self) -> None:
        entry = self.query_one(Table).cursor
        if entry is not None and entry != self._form.entry:
            self._form.entry = entry
            self._show_entry()

    on_table_selected = action_choose
    on_descendant_focus = _draw_foot

    def on_input_changed(self, message: Input.Changed) -> None:
        self._take(message.input, message.input.value)

    def on_chips_changed(self, message: Chips.Changed) -> None:
        self._take(message.chips, message.value)

    def _take(self, control: Widget, value: str) -> None:
        line = control.parent
        if isinstance(line, FieldLine) and line.field is not NO_FIELD:
            self._form.take(line.field.key, value)
            if line.field.decides:
                self._show_entry()
            elif not self._is_due:  # a check may take 45 ms, so letters are shown first
                self._is_due = self.call_after_refresh(self._check)

    def action_start(self) -> None:
        """Start the run, or go to the field that is invalid."""
        self._check()  # letters may have come since the last one
        if self._checked.is_missing:
            self._form.take("code", "")
            self._check()
        if not self._checked.error:
            self.dismiss(self._checked.request)
        elif (line := self._wrong_line()) is not None:
            self.set_focus(line.control)

    on_input_submitted = action_start

    def action_leave(self) -> None:
        """Leave the form, or first the text that is looked for."""
        if self._choosing and self._sought:
            self._seek("")
        else:
            self.dismiss(None)


def _cut(lines: list[Content], room: int, width: int) -> list[Content]:
    """At most `room` lines, at least one; the last ends in an ellipsis if lines are missing."""
    room = max(1, room)
    if len(lines) <= room:
        return lines
    return [*lines[: room - 1], Content.assemble(lines[room - 1].truncate(width - 1), "…")]
