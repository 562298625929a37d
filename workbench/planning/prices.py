"""Prices of devices per hour, which only the user gives."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ..contract.device import PRICES
from ..text.toml_file import TomlError, read
from .request import check_device
from .usage import UsageError, unknown

LEAST, MOST = PRICES
TABLE = "per_hour"


def given_prices(
    texts: Sequence[str], file: str | None, node_types: Collection[str] = ()
) -> dict[str, float]:
    """Prices from `--price` texts such as `gpu=2.99` and the table [per_hour] of a `--prices` file.

    Keys are `cpu`, `gpu`, a device (`cuda:1`, `fake:0`) or one of `node_types`; a text overrides
    the file.  UsageError for anything else.
    """
    own: dict[str, str] = {}
    for text in texts:
        device, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise UsageError(f"--price takes DEVICE=PER_HOUR such as gpu=2.99, not {text!r}")
        if device in own:
            raise UsageError(f"--price: {device} is given twice")
        own[device] = value
    found = {} if file is None else _checked(f"--prices {file}", _table(file), node_types)
    return found | _checked("--price", {name: _number(own[name]) for name in own}, node_types)


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _table(file: str) -> dict[str, Any]:
    """The table [per_hour] of a TOML file, with lines such as `cpu = 0.10`."""
    try:
        tables = read(Path(file)).tables
    except TomlError as error:
        raise UsageError(f"--prices {error}") from None
    prices = tables.pop(TABLE, None)
    if not isinstance(prices, dict) or tables:
        problem = f"unexpected {next(iter(tables))!r}" if tables else "it has none"
        text = f"--prices {file} takes one table [{TABLE}], such as cpu = 0.10: {problem}"
        raise UsageError(text)
    return prices


def _checked(where: str, prices: dict[str, Any], node_types: Collection[str]) -> dict[str, float]:
    for device, value in prices.items():
        try:
            check_device(device)
            is_known = "@" not in device
        except UsageError:
            is_known = device in node_types
        if not is_known:
            choices = [*node_types, "cpu", "gpu", "cuda:0", "fake:0"]
            raise unknown(f"device in {where}:", device, choices)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UsageError(f"{where} {device}: {value!r:.24} is not a number such as 2.99")
        if not LEAST <= value <= MOST:  # also true for NaN
            problem = f"{device}={value!r:.24}"
            text = f"{where}: a price must be between {LEAST:g} and {MOST:g}, not {problem}"
            raise UsageError(text)
    return {device: float(value) for device, value in prices.items()}
