"""Numbers for people, in logs, tables, sentences and on screens.

Microseconds are written `us`, since some fonts and logs lose the Greek letter.
"""

import math
from collections.abc import Callable, Sequence

from ..contract import DEVICE_KINDS

NOT_AVAILABLE = "n/a"
MOST_HALF = 9.99  # half an interval over its median, above which tables have no room for it
WIDE = 4.0  # upper end of an interval over its lower, from which the estimate says little

_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def significant(value: float) -> str:
    """Three significant digits without an exponent: 0.0123, 1.23, 123, 7,670."""
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    rounded = round(value, 2 - magnitude)
    # Rounding may carry into the next power of ten: 9.996 becomes 10.0, not 10.00.
    magnitude = math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(0, 2 - magnitude)}f}"


def figure(value: float) -> str:
    """Two digits, as of an error or its limit: `0.97`, `0.05`, and far from 1 `2e-6` or `2.5e3`."""
    if value == 0 or 1e-3 <= abs(value) < 99.5:
        return f"{value:.2g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def duration(seconds: float | None, *, align: bool = False) -> str:
    """`412 us`, `12.3 ms`, `1.23 s`, `2 min 05 s`; `align` pads the unit to two characters."""
    if seconds is None:
        return NOT_AVAILABLE
    if seconds >= 120:
        return clock(seconds)
    text = _scaled(seconds, _TIME_UNITS)
    return f"{text} " if align and text.endswith(" s") else text


def joules(value: float) -> str:
    """`412 uJ`, `12.3 mJ`, `1.23 J`, `4.56 kJ`."""
    scales = ((1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"), (1e-6, "uJ"), (1e-9, "nJ"))
    return _scaled(value, scales)


def _scaled(value: float, scales: Sequence[tuple[float, str]], like: float | None = None) -> str:
    """The value with its own prefix, or that of `like` if `like` is less than 1000 times larger."""
    by = like if like is not None and value < like < 1000 * value else value
    scale, unit = next((entry for entry in scales if by >= entry[0] * 0.9995), scales[-1])
    return f"{significant(value / scale)} {unit}"


def count(number: int) -> str:
    """`3.01 M`, `496 M`, `812`."""
    return _scaled(number, _PREFIXES) if number >= 1000 else str(number)


def clock(seconds: float) -> str:
    """Whole seconds for progress: `7 s`, `58 s`, `2 min 05 s`."""
    whole = max(0, round(seconds))
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60:02d} s"


def rate(value: float | None, unit: str, like: float | None = None) -> str:
    """`412 GFLOP/s`, `18.2 GB/s`; plain counts below a million: `12,300 samples/s`.  It has the
    prefix of the rate `like`, unless it is less than a thousandth of that."""
    if value is None:
        return NOT_AVAILABLE
    unit = "B/s" if unit == "bytes/s" else unit
    prefixed = unit in ("FLOP/s", "OP/s", "B/s")
    if prefixed or value >= 999_500:
        full = unit if prefixed else f" {unit}"
        scales = [*((scale, prefix + full) for scale, prefix in _PREFIXES), (1, unit)]
        return _scaled(value, scales, like)
    return f"{significant(value)} {unit}"


def per_s(precision: str) -> str:
    """The unit of a rate of operations in this precision: FLOP/s, or that of integers."""
    return "OP/s" if precision == "int8" else "FLOP/s"


def size(count: float | None) -> str:
    """Bytes with binary prefixes: `32 KiB`, `1.50 MiB`, `140 GiB`."""
    if count is None:
        return NOT_AVAILABLE
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1023.5:
            break
        value, unit = value / 1024, larger
    whole = value == int(value) and value < 1000
    return f"{value:.0f} {unit}" if whole else f"{significant(value)} {unit}"


def above_1(value: float, bounds: Sequence[float] | None) -> tuple[float, Sequence[float] | None]:
    """A ratio and its interval, both inverted if the ratio is below 1."""
    if value >= 1 or not all((value, *(bounds or ()))):
        return value, bounds
    return 1 / value, [1 / bound for bound in reversed(bounds)] if bounds is not None else None


def ratio_parts(value: float | None, interval: Sequence[float] | None) -> tuple[str, str]:
    """`("38.2x", "37.1-39.0")` with the same decimals; `2.3-80` where the interval is wide."""
    if value is None:
        return "", ""
    text = f"{value:.{_decimals(value)}f}x"
    return text, "-".join(_bounds(value, interval)) if interval else ""


def _is_wide(interval: Sequence[float]) -> bool:
    return interval[1] >= WIDE * interval[0]


def says_nothing(interval: Sequence[float]) -> bool:
    """Whether a ratio with this interval may as well be far below 1 as far above it."""
    return interval[0] <= 1 <= interval[1] and _is_wide(interval)


def _bounds(value: float, interval: Sequence[float]) -> list[str]:
    """The bounds as texts; those of a wide interval have two digits, or two decimals below 2."""
    if not _is_wide(interval):
        return [f"{bound:.{_decimals(value)}f}" for bound in interval]
    return [f"{x:.{_decimals(x if x < 1.995 else 10 * x)}f}" for x in interval]


def _decimals(value: float) -> int:
    """Two decimals for 0.48 and 3.15, one for 38.2, none for 412, more for small ratios."""
    edges = (99.5, 9.95, 0.0995, 0.00995)
    return next((place for place, edge in enumerate(edges) if value >= edge), len(edges))


def lead_parts(value: float, interval: Sequence[float]) -> tuple[str, str]:
    """`("1.49x", "95% CI 1.21-1.84")`; a wide interval comes first:
    `("2.3x to 80x", "95% CI; estimate 13.6x")`."""
    factor, ci = ratio_parts(value, interval)
    if interval[0] <= 1 or not _is_wide(interval):
        return factor, f"95% CI {ci}"
    low, high = _bounds(value, interval)
    return f"{low}x to {high}x", f"95% CI; estimate {factor}"


def ratio(value: float | None) -> str:
    """`38.2x`; "" without a ratio."""
    return ratio_parts(value, None)[0]


def share(value: float) -> str:
    """An error as `1.0%`, or below a thousandth as `2e-6`."""
    return f"{value:.1%}" if value >= 1e-3 else figure(value)


def percent(share: float) -> str:
    """`0.8%`, `12%`, `71%` for a share between 0 and 1."""
    value = share * 100
    return f"{value:.1f}%" if value < 9.95 else f"{value:.0f}%"


def spread(center: float | None, interval: Sequence[float] | None) -> str:
    """Half the interval's width over the median: `±1.2%`, at most `±>999%`, or ""."""
    if not center or interval is None:
        return ""
    half = (interval[1] - interval[0]) / 2 / center
    return f"±{percent(half)}" if half < MOST_HALF else f"±>{percent(MOST_HALF)}"


# Ending of a metric's name -> the form of its value.
_FORMS: dict[str, Callable[[float], str]] = {
    "_fraction": percent,
    "_bytes_per_s": lambda value: rate(value, "B/s"),
    "_bytes": size,
    "_s": duration,
    "_j": joules,
    "": lambda value: f"{value:,.0f}" if value == int(value) else significant(value),
}


def named(name: str, value: float) -> str:
    """A metric whose name ends in its unit: `waiting 12%`, `allreduce 1.20 GB/s`, `epochs 3`."""
    ending = next(ending for ending in _FORMS if name.endswith(ending))
    words = {"waiting": "waiting for data", "faulting": "faulting in memory"}
    label = name.removesuffix(ending).replace("_", " ")
    return f"{words.get(label, label)} {_FORMS[ending](value)}"


DEVICES = tuple(k.name + (":" if k.numbered else " ") for k in DEVICE_KINDS.values())


def times(value: float, interval: Sequence[float]) -> str:
    """`2.05x (95% CI 1.99-2.10)`."""
    ratio, bounds = ratio_parts(value, interval)
    return f"{ratio} (95% CI {bounds})"


def apart(value: float, interval: Sequence[float]) -> str:
    """As `times`, but always above 1, for a ratio whose direction is not known; a wide interval has
    no value: `the ratio varies (95% CI 0.50-4.0)`."""
    value, bounds = above_1(value, interval)
    bounds = bounds or interval
    if not _is_wide(bounds):
        return times(value, bounds)
    return f"the ratio varies (95% CI {ratio_parts(value, bounds)[1]})"


def gain(factor: float) -> str:
    """`2.05x`, or `1/2.05x` below 1."""
    text = ratio(max(factor, 1 / factor))
    return text if factor >= 1 or text == "1.00x" else f"1/{text}"


def lead(factor: float) -> str:
    """`2.05x` before `faster` or `slower`, also for 1/2.05; `less than 1%` if it rounds to 1."""
    text = gain(max(factor, 1 / factor))
    return "less than 1%" if text == "1.00x" else text


def counted(count: int, noun: str) -> str:
    """`1 run`, `2,000 runs`."""
    return f"{count:,} {noun}{'s'[: count != 1]}"


def listed(phrases: Sequence[str], most: int | None = None) -> str:
    """`a`, `a and b`, `a, b and c`; beyond `most` of them `a, b and 4 more`."""
    if most is not None and len(phrases) > most:
        phrases = [*phrases[:most], f"{len(phrases) - most} more"]
    *others, last = phrases
    return f"{', '.join(others)} and {last}" if others else last


def as_sentence(text: str) -> str:
    """`text` with a full stop at its end and, unless it starts with a name, a capital."""
    first = text[:1] if text.startswith(DEVICES) else text[:1].upper()
    return f"{first}{text[1:].rstrip('.')}."
