"""The choices of a user: `workbench/config.toml` in the config folder, one line for each key."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import platformdirs

from .write import replace


class ConfigError(Exception):
    """The file or a value cannot be used; one line says why."""


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and value != ""


def _is_seconds(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < math.inf


def _are_texts(value: Any) -> bool:
    return type(value) is list and all(map(_is_text, value))


KEYS: dict[str, tuple[str, Callable[[Any], bool]]] = {  # what it means; the test of a value
    "theme": ("a theme of the screens (ctrl+p lists them)", _is_text),
    "budget": ("seconds of a run without --budget, --quick, --thorough or --all", _is_seconds),
    "prices": ("prices per hour, such as cpu=0.10,gpu=2.99", _are_texts),
}


def path() -> Path:
    """The file, which need not exist."""
    return platformdirs.user_config_path("workbench", appauthor=False) / "config.toml"


def load() -> tuple[dict[str, Any], list[str]]:
    """The values that can be used, and a line for each that cannot."""
    try:
        found = tomllib.loads(_text())
    except (ConfigError, tomllib.TOMLDecodeError, RecursionError) as error:
        return {}, [f"{path()}: {error}; its values are not used"]
    wrong = [
        f"{path()}: {_complaint(key)}; it is not used"
        for key, value in found.items()
        if key not in KEYS or not KEYS[key][1](value)
    ]
    return {key: v for key, v in found.items() if key in KEYS and KEYS[key][1](v)}, wrong


def assign(key: str, text: str | None) -> None:
    """Set a key to the value that a user typed, or take it out; other lines stay as they are."""
    if key not in KEYS:
        raise ConfigError(_complaint(key))
    lines = [line for line in _text().splitlines() if not re.match(rf"\s*{key}\s*=", line)]
    if text is not None:
        lines.insert(0, f"{key} = {json.dumps(_value(key, text), ensure_ascii=False)}")
    content = "".join(f"{line}\n" for line in lines)
    try:
        tomllib.loads(content)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path()}: {error}; correct it first") from None
    try:
        path().parent.mkdir(parents=True, exist_ok=True)
        replace(path(), content.encode())
    except OSError as error:
        raise ConfigError(f"{path()} cannot be written: {error.strerror}") from None


def _value(key: str, text: str) -> object:
    value: object = text.split(",") if key == "prices" else text
    if key == "budget":
        with suppress(ValueError):
            value = float(text)
    if not KEYS[key][1](value):
        raise ConfigError(_complaint(key))
    return value


def _complaint(key: str) -> str:
    if key in KEYS:
        return f"{key} takes {KEYS[key][0]}"
    return f"unknown key {key[:40]!r}; keys: {', '.join(KEYS)}"


def _text() -> str:
    try:
        return path().read_text("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"it cannot be read: {error}") from None
