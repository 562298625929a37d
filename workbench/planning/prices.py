"""Prices of devices per hour, as the user gives them; none are shipped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from ..records.reason import Warning
from ..text.toml_file import TomlError, read
from .request import check_device
from .usage import UsageError, unknown

LEAST, MOST = 1e-6, 1e9  # price per hour; outside it is a typo, and products may overflow
TABLE = "per_hour"


def given_prices(
    texts: Sequence[str], file: str | None, node_types: Collection[str] = ()
) -> dict[str, float]:
    """Prices from `--price` texts such as `gpu=2.99` and the table [per_hour] of a `--prices` file.

    Keys are `cpu`, `gpu`, a device (`cuda:1`, `fake:0`) or one of `node_types`; a text overrides
    the file.  UsageError says in one line what is wrong.
    """
    from_file = {} if file is None else read_prices(file, node_types)
    own: dict[str, float] = {}
    for text in texts:
        device, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise UsageError(f"--price takes DEVICE=PER_HOUR such as gpu=2.99, not {text!r}")
        _check_key("--price", device, node_types)
        if device in own:
            raise UsageError(f"--price: {device} is given twice")
        try:
            number = float(value)
        except ValueError:
            raise UsageError(
                f"--price {device}: {value!r} is not a number; write gpu=2.99"
            ) from None
        own[device] = _checked("--price", device, number)
    return {**from_file, **own}


def unused_prices(texts: Sequence[str], devices: Iterable[str]) -> list[Warning]:
    """A warning about `--price` texts for a device without candidates; `devices` have some.

    Prices of `cpu` and `gpu`, and those of a file, are shared between machines and not checked.
    """
    used = sorted(set(devices))
    keys = (text.partition("=")[0].strip() for text in texts)
    unused = [key for key in keys if ":" in key and key not in used]
    if not unused:
        return []
    named = " and ".join(f"--price {key}" for key in unused)
    remedy = f"name one of {', '.join(used)}" if used else "leave it out"
    return [Warning("price_unused", f"{named}: no candidate of this run uses it", remedy)]


def read_prices(file: str, node_types: Collection[str] = ()) -> dict[str, float]:
    """The prices of a TOML file with a table [per_hour] such as `cpu = 0.10`."""
    where = f"--prices {file}"
    try:
        tables = read(Path(file)).tables
    except TomlError as error:
        raise UsageError(f"--prices {error}") from None
    prices = tables.pop(TABLE, None)
    if not isinstance(prices, dict) or tables:
        problem = f"unexpected {next(iter(tables))!r}" if tables else "it has none"
        raise UsageError(f"{where} takes one table [{TABLE}], such as cpu = 0.10: {problem}")
    for device in prices:
        _check_key(where, device, node_types)
    return {device: _checked(where, device, value) for device, value in prices.items()}


def _check_key(where: str, device: str, node_types: Collection[str]) -> None:
    try:
        check_device(device)
        known = "@" not in device
    except UsageError:
        known = device in node_types
    if not known:
        choices = [*node_types, "cpu", "gpu", "cuda:0", "fake:0"]
        raise unknown(f"device in {where}:", device, choices)


def _checked(where: str, device: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f'{where}: the price of {device} must be a number: "cuda:1" = 2.99')
    if not LEAST <= value <= MOST:  # also true for NaN
        problem = f"{device}={value!r:.24}"
        raise UsageError(f"{where}: a price must be between {LEAST:g} and {MOST:g}, not {problem}")
    return float(value)
