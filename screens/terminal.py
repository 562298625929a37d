"""The terminal of the applications, which may send bytes that are not text, or stop reading."""

import asyncio
import gc
import os
import select
import signal
import sys
from abc import abstractmethod
from codecs import getincrementaldecoder
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from typing import Any

from textual import events
from textual._context import active_message_pump
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.drivers.linux_driver import LinuxDriver
from textual.keys import Keys

from workbench.engine.exit_codes import FAILED
from workbench.files.config import load, path
from workbench.planning.usage import unknown
from workbench.text.output import let_go, say, say_bug

from .compact import compact
from .theme import DARK, NAMES, apply_theme

ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
TICK_S = 0.1  # between two checks whether a lone ESC byte was the key
LEAVE_S, HURRY_S = 2.0, 0.2  # for the terminal to take the last writes; less after a second signal
LEAST = (40, 10)  # columns and lines that the screens need
TOO_SMALL = "needs {}x{} or more".format(*LEAST)
KEEP_TITLE, RESTORE_TITLE = "\x1b[22;2t", "\x1b[23;2t"  # XTWINOPS
LAYOUTS = 4  # until the first picture is complete
BACKLOG = 8  # waiting writes, above which the terminal counts as not reading


class TerminalApp(App[None]):
    """The base of the applications: palette, signals and the way they end."""

    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False  # else a double click selects a table, and ctrl+c to copy ends the run
    _shown_title = ""
    is_opening = True  # nothing was drawn yet

    def __init__(self) -> None:
        if "STY" in os.environ:  # GNU screen misreads 24-bit colours, which the terminal may have
            os.environ.pop("COLORTERM", None)
        # NO_COLOR means none, not grey: Textual drops colours only from a native palette.
        ansi = True if "NO_COLOR" in os.environ else None
        super().__init__(driver_class=TerminalDriver, ansi_color=ansi)
        self._disable_tooltips = True  # no widget has one, and each screen would mount theirs
        theme = load()[0].get("theme", DARK.name)
        if theme not in NAMES:
            say(f"workbench: {path()}: {unknown('theme', theme, NAMES)}")
        apply_theme(self, theme)
        self._handlers: dict[int, Any] = {}  # signal handlers to restore at the end

    def on_load(self) -> None:
        """Draw nothing before `show_first`, and start tasks as Python 3.11 does, on every Python.

        From 3.12 on Textual starts them eagerly, which mounts the first screen before it is on the
        stack: a screen with an Input fails (Textual issue 6444).
        """
        asyncio.get_running_loop().set_task_factory(None)
        self._begin_batch()

    def show_first(self, passes: int = LAYOUTS) -> None:
        """Draw the first picture once it is complete; Textual would draw each stage of it."""
        if not self.is_opening:
            return
        screen = self.screen
        if passes:  # each gives the sizes for which widgets make the contents of the next
            screen.call_after_refresh(self.call_later, self.show_first, passes - 1)
        else:
            self.is_opening = False
            self._end_batch()
            screen._layout_required = screen._repaint_required = False  # done just below
        screen._refresh_layout()
        if not passes:
            if not self.is_headless:  # where many tests share a process
                gc.freeze()  # modules and widgets stay, so no collection needs to visit them
            gc.enable()
            self.call_later(self.shown)

    def shown(self) -> None:
        """Called when the first picture is on the screen."""

    def on_mount(self) -> None:
        self.app_resume_signal.subscribe(self, self._redraw, immediate=True)
        loop = asyncio.get_running_loop()
        for number in ENDS:
            if (before := signal.getsignal(number)) != signal.SIG_IGN:  # as under nohup
                self._handlers[number] = before
                loop.add_signal_handler(number, self.action_interrupt)

    def _redraw(self, _app: App[Any]) -> None:
        """Draw all, since after a suspend the terminal is empty, and Textual draws changes only."""
        for screen in self.screen_stack:
            screen.refresh()
            screen.query("*").refresh()

    def on_app_focus(self) -> None:
        """Set the focus of a screen that opened in the background, where Textual sets none."""
        if self.focused is None and (wanted := self.screen.AUTO_FOCUS):
            self.screen.set_focus(next((w for w in self.screen.query(wanted) if w.focusable), None))

    def on_unmount(self) -> None:
        loop = asyncio.get_running_loop()
        for number, before in self._handlers.items():
            loop.remove_signal_handler(number)
            signal.signal(number, before)

    def on_resize(self, event: events.Resize) -> None:
        is_tiny = event.size.width < LEAST[0] or event.size.height < LEAST[1]
        if is_tiny != self.has_class("-tiny"):
            self.set_class(is_tiny, "-tiny")
            for screen in chain(*self._screen_stacks.values()):  # those that are hidden, too
                screen.update_node_styles(animate=False)

    def write_to_terminal(self, control: str) -> None:
        """Send a sequence that draws nothing, such as a title; no effect without a terminal."""
        if isinstance(self._driver, TerminalDriver):
            self._driver.write(control)

    def show_title(self, text: str) -> None:
        """Set the title of the terminal's window until the application ends."""
        if text != self._shown_title:
            self.write_to_terminal(f"{'' if self._shown_title else KEEP_TITLE}\x1b]2;{text}\x07")
            self._shown_title = text

    def announce(self, text: str) -> None:
        """Ring the bell, and show a notice where the terminal can (OSC 9)."""
        self.write_to_terminal(f"\x1b]9;{text}\x1b\\\x07")

    @abstractmethod
    def action_interrupt(self) -> None:
        """Leave because of a signal or Ctrl-C, or because the terminal is gone."""

    def delay_update(self, delay: float = 0.0) -> None:
        """Draw a switch of screens at once: Textual would hold the picture back for 50 ms."""

    @property
    def is_unread(self) -> bool:
        """Whether the terminal has stopped reading, so that more drawing would fill the memory."""
        driver = self._driver
        return isinstance(driver, TerminalDriver) and driver.waiting > BACKLOG

    @property
    def is_lost(self) -> bool:
        """Whether the terminal is gone or did not take the last writes."""
        return isinstance(self._driver, TerminalDriver) and self._driver.is_lost

    def hurry(self, code: int) -> None:
        """Exit with hardly any wait for the terminal."""
        if isinstance(self._driver, TerminalDriver):
            self._driver.patience_s = HURRY_S
        self.exit(return_code=code)

    def _handle_exception(self, error: Exception) -> None:
        """End after an error, except where widgets are missing because the application is leaving,
        or because a screen was closed before it was open."""
        pump = active_message_pump.get()
        closed = isinstance(pump, DOMNode) and any(n._pruning for n in pump.ancestors_with_self)
        if not self._exit and not (closed and isinstance(error, NoMatches)):
            super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """Print no traceback, since `show` reports the error."""
        self._close_messages_no_wait()

    def show(self) -> int:
        """Run until the user leaves; returns the exit code."""
        try:
            self.run()
        except Exception as error:  # while Textual closes the screens
            self._handle_exception(error)
        if self.is_lost:
            let_go(sys.stdout)
            let_go(sys.stderr)
        if self._exception is not None:
            say_bug(self._exception)
        return FAILED if self.return_code is None else self.return_code


class TerminalDriver(LinuxDriver):
    """Textual's driver, which here neither ends the program nor waits for ever."""

    def __init__(self, app: TerminalApp, **options: Any) -> None:
        super().__init__(app, **options)
        self._leave = app.action_interrupt
        self._unbuffered = _Unbuffered()
        self._file = self._unbuffered  # type: ignore[assignment]  # all that the writer thread uses
        self._given = 0  # number of writes that the thread was given
        self._direct = _reopened()
        self.patience_s = LEAVE_S
        self.is_lost = False

    @property
    def waiting(self) -> int:
        """The number of writes that the terminal has not taken yet."""
        return 0 if self._writer_thread is None else self._writer_thread._queue.qsize()

    def write(self, data: str) -> None:
        """Write what the terminal takes at once, and leave the rest to the thread.

        While all cores measure, a change of threads may take as long as a whole picture.
        """
        left = compact(data).encode("utf-8", "replace")
        if self._direct is not None and self._given == self._unbuffered.done:
            with suppress(OSError):  # it takes nothing now, or is gone
                left = left[os.write(self._direct, left) :]
        if left:
            self._given += 1
            super().write(left)  # type: ignore[arg-type]

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if self._writer_thread is not None:
            # Textual's queue of 30 writes would make the event loop wait for the terminal.
            self._writer_thread._queue.maxsize = 0

    def stop_application_mode(self) -> None:
        if isinstance(self._app, TerminalApp) and self._app._shown_title:
            self.write(RESTORE_TITLE)
            self._app._shown_title = ""  # after a suspend the terminal's own is saved again
        super().stop_application_mode()

    def _sigcont_application(self, *_: Any) -> None:
        if self._must_signal_resume:  # else nothing was suspended, and its threads would double
            super()._sigcont_application()

    def close(self) -> None:
        thread = self._writer_thread
        if thread is not None:
            thread._queue.put(None)
            thread.join(self.patience_s)
            self.is_lost = self.is_lost or thread.is_alive()
        if self._direct is not None:
            os.close(self._direct)
            self._direct = None

    def run_input_thread(self) -> None:
        """Read keys until `exit_event`; bytes and sequences that cannot be read are dropped."""
        decode = getincrementaldecoder("utf-8")("ignore").decode
        parser = _KeyParser()
        while not self.exit_event.is_set():
            data = self._read()
            if data == b"":
                self.is_lost = True
                self._app.call_later(self._leave)
                return
            text = decode(data or b"")
            try:
                for message in parser.feed(text) if text else parser.tick():
                    self.process_message(message)
            except Exception:  # any other error of Textual's parser
                parser = _KeyParser()

    def _read(self) -> bytes | None:
        """The bytes that were typed; None if there are none, empty if the terminal is gone."""
        if not select.select([self.fileno], [], [], TICK_S)[0]:
            return None
        with suppress(OSError):  # EIO after a hang-up
            return os.read(self.fileno, 4096)
        return b""


class _KeyParser(XTermParser):
    """Textual's parser, except that no keys are lost after one that it cannot read."""

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        try:
            yield from super()._sequence_to_key_events(sequence, alt)
        except (ValueError, OverflowError):  # a number beyond Unicode, or other fields
            yield events.Key(Keys.Ignore, sequence)


def _reopened() -> int | None:
    """A descriptor of the terminal whose writes do not wait; None if it cannot be opened again.

    It is a descriptor of its own, since other programs share the flags of stderr.
    """
    with suppress(OSError):
        return os.open(os.ttyname(2), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    return None


class _Unbuffered:
    """stderr without Python's buffer, which would wait at exit for a thread that is writing."""

    done = 0  # number of writes

    def write(self, data: bytes) -> None:
        with suppress(OSError):  # the terminal is gone
            while data:
                data = data[os.write(2, data) :]
        self.done += 1

    def flush(self) -> None:
        pass
