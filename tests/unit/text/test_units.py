"""Numbers as people read them."""

import pytest
from hypothesis import given, strategies as st

from workbench.text import units


@pytest.mark.parametrize(
    ("in_words", "value", "shown"),
    [
        (units.duration, None, "n/a"),
        (units.duration, 0.0, "0 ns"),
        (units.duration, 4.2e-8, "42.0 ns"),
        (units.duration, 4.12e-4, "412 us"),
        (units.duration, 0.99996e-3, "1.00 ms"),
        (units.duration, 0.0123, "12.3 ms"),
        (units.duration, 1.234, "1.23 s"),
        (units.duration, 59.96, "60.0 s"),
        (units.duration, 125.0, "2 min 05 s"),
        (units.joules, 0.0, "0 nJ"),
        (units.joules, 4.2e-8, "42.0 nJ"),
        (units.joules, 4.12e-4, "412 uJ"),
        (units.joules, 0.99996e-3, "1.00 mJ"),
        (units.joules, 2.5, "2.50 J"),
        (units.joules, 12_340.0, "12.3 kJ"),
        (units.size, None, "n/a"),  # in binary units
        (units.size, 0, "0 B"),
        (units.size, 32 * 1024, "32 KiB"),
        (units.size, 1.5 * 2**20, "1.50 MiB"),
        (units.size, 150_754_820_096, "140 GiB"),
        (units.size, 1023.7 * 2**20, "1.00 GiB"),
        (units.count, 812, "812"),
        (units.count, 3_012_345, "3.01 M"),
        (units.count, 999_600, "1.00 M"),
        (units.figure, 0.0, "0"),  # below a thousandth with an exponent
        (units.figure, 0.97, "0.97"),
        (units.figure, 0.05, "0.05"),
        (units.figure, 1.23e-6, "1.2e-6"),
        (units.figure, 1e-5, "1e-5"),
    ],
)
def test_amounts_have_three_digits_and_a_unit(in_words, value, shown) -> None:
    assert in_words(value) == shown


def test_aligned_durations_end_in_one_column() -> None:
    shown = [units.duration(value, align=True) for value in (4.12e-4, 0.0123, 1.234)]
    assert shown == ["412 us", "12.3 ms", "1.23 s "]


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (None, "FLOP/s", "n/a"),
        (4.12e11, "FLOP/s", "412 GFLOP/s"),
        (9.996e14, "FLOP/s", "1.00 PFLOP/s"),
        (950.0, "FLOP/s", "950 FLOP/s"),
        (3.214, "samples/s", "3.21 samples/s"),
        (1234.4, "samples/s", "1,230 samples/s"),
        (12_345.0, "samples/s", "12,300 samples/s"),
        (664_712.0, "products/s", "665,000 products/s"),
        (2.5e6, "samples/s", "2.50 M samples/s"),
    ],
)
def test_rates_carry_si_prefixes(value: float | None, unit: str, shown: str) -> None:
    assert units.rate(value, unit) == shown


@pytest.mark.parametrize(
    ("value", "interval", "shown"),
    [
        (None, None, ""),
        (38.21, (37.06, 39.04), "38.2x  37.1-39.0"),
        (0.4812, (0.462, 0.4999), "0.48x  0.46-0.50"),
        (412.3, (400.2, 420.0), "412x  400-420"),
        (0.0412, None, "0.041x"),
        (0.00412, None, "0.0041x"),
        (9.98, None, "10.0x"),
        (13.6, (2.31, 80.4), "13.6x  2.3-80"),  # a wide one needs no decimals
        (3.1, (1.04, 9.96), "3.10x  1.04-10"),
    ],
)
def test_ratio_and_interval_have_the_same_decimals(value, interval, shown) -> None:
    assert "  ".join(filter(None, units.ratio_parts(value, interval))) == shown


def test_spread_is_half_the_interval_over_the_median() -> None:
    assert units.spread(2.0, (1.98, 2.02)) == "±1.0%"
    assert units.spread(2.0, (1.5, 2.5)) == "±25%"
    assert units.spread(2.0, None) == units.spread(None, (1.0, 2.0)) == ""
    assert units.spread(1e-3, (1e-4, 0.7)) == "±>999%"


@given(st.floats(1e-9, 119), st.floats(1e3, 1e17))
def test_an_amount_in_words_is_the_amount_to_three_digits(time_s: float, rate: float) -> None:
    factors = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
    factors |= {f"{prefix}FLOP/s": 1000**n for n, prefix in enumerate(["", *"kMGTP"])}
    for value, text in ((time_s, units.duration(time_s)), (rate, units.rate(rate, "FLOP/s"))):
        number, unit = text.split()
        assert float(number) * factors[unit] == pytest.approx(value, rel=0.006)
        assert float(number) < 1000


def test_a_rate_has_the_prefix_of_the_one_it_is_compared_with() -> None:
    assert units.rate(4.84e11, "FLOP/s", like=5.2e13) == "0.484 TFLOP/s"
    assert units.rate(4.84e11, "FLOP/s", like=5.2e14) == "484 GFLOP/s"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("waiting_fraction", 0.12, "waiting for data 12%"),
        ("allreduce_bytes_per_s", 1.2e9, "allreduce 1.20 GB/s"),
        ("buffer_bytes", 2048, "buffer 2 KiB"),
        ("slowest_rank_s", 0.5, "slowest rank 500 ms"),
        ("energy_j", 1.05, "energy 1.05 J"),
        ("epochs", 3, "epochs 3"),
    ],
)
def test_a_named_figure_ends_in_its_unit(name: str, value: float, text: str) -> None:
    assert units.named(name, value) == text


def test_integers_are_no_floating_point() -> None:
    assert (units.per_s("int8"), units.per_s("fp8")) == ("OP/s", "FLOP/s")


def test_a_ratio_whose_direction_says_nothing_is_above_1() -> None:
    assert units.apart(0.5, (0.4, 1.25)) == "2.00x (95% CI 0.80-2.50)"
    assert units.apart(2.0, (0.8, 2.5)) == "2.00x (95% CI 0.80-2.50)"


def test_a_ratio_that_may_be_far_on_either_side_of_1_has_no_value() -> None:
    for value, interval in ((0.5, (0.25, 2.0)), (2.0, (0.5, 4.0))):
        assert units.says_nothing(interval)
        said = "the ratio varies (95% CI 0.50-4.0)"
        assert units.apart(value, interval) == said
    assert not units.says_nothing((2.3, 80.0))


@pytest.mark.parametrize(
    ("value", "interval", "shown"),
    [
        (1.49, (1.21, 1.84), ("1.49x", "95% CI 1.21-1.84")),
        (13.6, (2.3, 80.0), ("2.3x to 80x", "95% CI; estimate 13.6x")),
        (1.3, (0.6, 2.8), ("1.30x", "95% CI 0.60-2.8")),
    ],
)
def test_the_size_of_a_lead_is_its_interval_where_that_is_wide(value, interval, shown) -> None:
    assert units.lead_parts(value, interval) == shown
