"""One palette: blue for CPU, green for GPU, orange for warnings, red for failures.

Every colour comes with a word or a symbol that says the same: nothing is lost with sixteen
colours, without colours, or to a colour-blind reader.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from textual.app import App
from textual.theme import BUILTIN_THEMES, Theme


def _shades(kind: str, *colours: str) -> dict[str, str]:
    """Curve colours of one kind of device, `$cpu-0` and so on: cold for CPUs, warm for GPUs."""
    return {f"{kind}-{number}": colour for number, colour in enumerate(colours)}


# Exact members of the 256-colour palette: over SSH, where COLORTERM is not forwarded, no colour
# has to be approximated.
DARK = Theme(
    name="workbench",
    primary="#87afd7",
    secondary="#5f87af",
    accent="#87afd7",
    warning="#ffaf5f",
    error="#ff5f5f",
    success="#87d787",
    foreground="#d0d0d0",
    background="#121212",
    surface="#121212",
    panel="#262626",
    boost="#303030",
    variables={
        "cpu": "#5fafff",
        "gpu": "#87d75f",
        **_shades("cpu", "#5fafff", "#5fd7d7", "#af87ff", "#d787d7"),
        **_shades("gpu", "#87d75f", "#d7d75f", "#5fd7af", "#d7af5f"),
        "rule": "#444444",
        "cursor": "#303030",
        "footer-key-foreground": "#87afd7",
        "footer-background": "#1c1c1c",
        "footer-description-foreground": "#a8a8a8",
    },
)

# The terminal's own sixteen colours, for terminals without more and under NO_COLOR.
_ANSI = BUILTIN_THEMES["ansi-dark"]
SIXTEEN = replace(
    _ANSI,
    name="workbench-16",
    primary="ansi_cyan",
    accent="ansi_cyan",
    variables={
        **_ANSI.variables,
        "cpu": "ansi_cyan",
        "gpu": "ansi_green",
        **_shades("cpu", "ansi_cyan", "ansi_blue", "ansi_magenta", "ansi_bright_cyan"),
        **_shades("gpu", "ansi_green", "ansi_yellow", "ansi_bright_green", "ansi_bright_yellow"),
        "rule": "ansi_default",
        "cursor": "ansi_default",
        "footer-background": "ansi_default",
        "footer-description-foreground": "ansi_default",
    },
)


def apply_theme(app: App[Any]) -> None:
    """Set the palette that the terminal can show, and turn animations off."""
    app.animation_level = "none"
    app.register_theme(DARK)
    app.register_theme(SIXTEEN)
    few = app.no_color or app.console.color_system in ("standard", None)
    app.theme = SIXTEEN.name if few else DARK.name
