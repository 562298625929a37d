"""A pane of text that scrolls; the key bar names the key while there is more below."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from .keybar import OPTIONAL


class Pane(VerticalScroll):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pagedown,ctrl+d", "page_down", "More", key_display="pgdn", group=OPTIONAL),
        Binding("ctrl+u", "page_up", show=False),  # its other keys are Textual's
        Binding("j", "scroll_down", show=False),
        Binding("k", "scroll_up", show=False),
        Binding("g", "scroll_home", show=False),
        Binding("G", "scroll_end", show=False),
    ]

    _had_more = False

    @property
    def has_more(self) -> bool:
        return self.scroll_y < self.max_scroll_y

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.has_more if action == "page_down" else True

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._update_keys()

    def _update_keys(self) -> None:
        if self._had_more != self.has_more:
            self._had_more = self.has_more
            self.refresh_bindings()

    on_resize = watch_show_vertical_scrollbar = _update_keys  # the text may be too long now, or fit
