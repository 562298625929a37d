"""The user's settings: `workbench/config.toml` in the config folder, one line for each key."""

import fcntl
import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import platformdirs

from ..contract.device import DEVICE_KINDS, PRICES
from .read import whole
from .write import replace, resolved

MOST_BYTES = 1 << 18
LONGEST_S = 86_400
_NUMBERED = "|".join(kind.name for kind in DEVICE_KINDS.values() if kind.numbered)
PRICE = re.compile(rf" *(cpu|gpu|(?:{_NUMBERED}):[0-9]+) *= *([0-9]*\.?[0-9]+) *")


class ConfigError(Exception):
    """The file or a value cannot be used; the message is one line."""


KEYS = {
    "theme": "a theme of the screens (ctrl+p lists them)",
    "budget": f"seconds from 1 to {LONGEST_S}, for runs without --budget, --quick ...",
    "prices": "prices per hour, such as cpu=0.10,gpu=2.99",
}


def _fits(key: str, value: Any) -> bool:
    if key == "theme":
        return isinstance(value, str) and value.isprintable() and value != ""
    if key == "budget":
        return type(value) in (int, float) and 1 <= value <= LONGEST_S
    if key not in KEYS or type(value) is not list or any(type(each) is not str for each in value):
        return False
    prices = [price.groups() for each in value if (price := PRICE.fullmatch(each))]
    in_bounds = all(PRICES[0] <= float(price) <= PRICES[1] for _, price in prices)
    return len({device for device, _ in prices}) == len(value) and in_bounds


def path() -> Path:
    """The file, which need not exist."""
    return platformdirs.user_config_path("workbench", appauthor=False) / "config.toml"


def load() -> tuple[dict[str, Any], list[str]]:
    """The usable values, and a line for each other one."""
    try:
        found = _parsed(_text())
    except ConfigError as error:
        return {}, [f"{error}; its values are not used"]
    used = {key: value for key, value in found.items() if _fits(key, value)}
    wrong = [f"{path()}: {_complaint(key)}; it is not used" for key in found if key not in used]
    return used, wrong


def assign(key: str, text: str | None) -> None:
    """Set a key to the value that a user typed, or remove it (None); other lines stay unchanged."""
    if key not in KEYS:
        raise ConfigError(_complaint(key))
    line = "" if text is None else f"{key} = {json.dumps(_value(key, text), ensure_ascii=False)}\n"
    try:
        path().parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(path().parent, os.O_RDONLY)
        try:
            with suppress(OSError):  # a network disk may have no locks
                fcntl.flock(folder, fcntl.LOCK_EX)  # each change replaces the whole file
            top, *tables = re.split(r"^(?=\s*\[)", _text(), maxsplit=1, flags=re.MULTILINE)
            # A list may span several lines.
            before = rf"^\s*{key}\s*=\s*(\[[^\]]*\].*|.*)\n?"
            content = "".join([line, re.sub(before, "", top, flags=re.MULTILINE), *tables])
            _parsed(content)
            replace(resolved(path()), content.encode())
        finally:
            os.close(folder)
    except OSError as error:
        remedy = "set XDG_CONFIG_HOME to a folder that can be written"
        raise ConfigError(f"{path()} cannot be written: {error.strerror}; {remedy}") from None


def _value(key: str, text: str) -> object:
    value: object = text.split(",") if key == "prices" else text
    if key == "budget":
        with suppress(ValueError):
            value = float(text)
    if not _fits(key, value):
        raise ConfigError(_complaint(key))
    return value


def _complaint(key: str) -> str:
    if key in KEYS:
        return f"{key} takes {KEYS[key]}"
    return f"unknown key {key[:40]!r}; keys: {', '.join(KEYS)}"


def _text() -> str:
    try:
        return whole(path(), MOST_BYTES).decode()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigError(f"{path()} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path()} is not UTF-8 text") from None


def _parsed(text: str) -> dict[str, Any]:
    if not text:
        return {}
    import tomllib  # slow to import, and only users with settings need it

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also of an integer with too many digits
        raise ConfigError(f"{path()} is not TOML: {error}") from None
