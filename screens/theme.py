"""One palette: blue for CPU, green for GPU, orange for warnings, red for failures.

Every colour comes with a word or a symbol that says the same: nothing is lost with sixteen
colours, without colours, or to a colour-blind reader.
"""

from dataclasses import replace
from typing import Any

from textual.app import App
from textual.theme import BUILTIN_THEMES, Theme


def _shades(kind: str, *colours: str) -> dict[str, str]:
    """The colour of a device kind, such as `$cpu`, and those of its curves, from `$cpu-0` on."""
    curves = {f"{kind}-{number}": colour for number, colour in enumerate(colours)}
    return {kind: colours[0], **curves}


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
        **_shades("cpu", "#5fafff", "#5fd7d7", "#af87ff", "#d787d7"),
        **_shades("gpu", "#87d75f", "#d7d75f", "#5fd7af", "#d7af5f"),
        "rule": "#444444",
        "cursor": "#262626",
        "footer-key-foreground": "#87afd7",
        "footer-background": "#1c1c1c",
        "footer-description-foreground": "#a8a8a8",
    },
)

# For a light terminal: every text colour has a contrast of 4.5 and more on white (WCAG AA).
LIGHT = Theme(
    name="workbench-light",
    dark=False,
    primary="#005f87",
    secondary="#005f5f",
    accent="#005f87",
    warning="#8a4b00",
    error="#af0000",
    success="#005f00",
    foreground="#262626",
    background="#ffffff",
    surface="#ffffff",
    panel="#eeeeee",
    boost="#e4e4e4",
    variables={
        **_shades("cpu", "#005faf", "#005f5f", "#5f00af", "#87005f"),
        **_shades("gpu", "#005f00", "#5f5f00", "#005f4b", "#7a4a00"),
        "rule": "#bcbcbc",
        "cursor": "#e4e4e4",
        "footer-key-foreground": "#005f87",
        "footer-background": "#eeeeee",
        "footer-description-foreground": "#4e4e4e",
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
        **_shades("cpu", "ansi_cyan", "ansi_blue", "ansi_magenta", "ansi_bright_cyan"),
        **_shades("gpu", "ansi_green", "ansi_yellow", "ansi_bright_green", "ansi_bright_yellow"),
        "rule": "ansi_default",
        "cursor": "ansi_default",
        "footer-background": "ansi_default",
        "footer-description-foreground": "ansi_default",
    },
)


OWN = {theme.name: theme for theme in (DARK, LIGHT, SIXTEEN)}
NAMES = [*OWN, *(name for name in BUILTIN_THEMES if not name.startswith("ansi"))]


def themes(app: App[Any]) -> list[str]:
    """The names of the themes that the terminal can show, ours first."""
    if app.no_color or app.console.color_system in ("standard", None):
        return [SIXTEEN.name]
    return NAMES


def _complete(name: str) -> Theme:
    """The theme; one of Textual's own gets the variables that it lacks."""
    if name in OWN:
        return OWN[name]
    theme = BUILTIN_THEMES[name]
    like = DARK if theme.dark else LIGHT
    roles = {k: v for k, v in like.variables.items() if not k.startswith("footer")}
    return replace(theme, variables={**roles, **theme.variables})


def choose(app: App[Any], name: str) -> None:
    """Show another theme at once."""
    app.register_theme(_complete(name))
    app.theme = name


def apply_theme(app: App[Any], wanted: str) -> None:
    """Set the wanted theme, or else one that the terminal can show, and turn animations off."""
    app.animation_level = "none"
    names = themes(app)
    name = wanted if wanted in names else names[0]
    app.register_theme(_complete(name))
    # Before the style sheets are read: a watcher would have them read again.
    app.set_reactive(App.theme, name)
    app.stylesheet.set_variables(app.get_css_variables())
