"""Several values in one word."""

import pytest
from hypothesis import given, strategies as st

from workbench.contract import Parameter
from workbench.planning.number_lists import coarse_to_fine, numbers, parse
from workbench.planning.usage import UsageError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("64", [64]),
        ("64,100,64", [64, 100]),
        ("64..512", [64, 128, 256, 512]),
        ("3..20", [3, 6, 12, 20]),
        ("1,4..8,100", [1, 4, 8, 100]),
    ],
)
def test_words_and_their_numbers(text: str, found: list[int]) -> None:
    assert numbers("n", text, int) == found


def test_ranges_of_floats_double_too() -> None:
    assert numbers("n", "0.5..3", float) == [0.5, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "text", ["", ",", "x", "1..", "..3", "4..2", "0..4", "-1..4", "1..inf", "1..2..4", "1e3"]
)
def test_words_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match=r"takes|rises"):
        numbers("n", text, int)


def test_too_many_values_are_refused_without_making_them() -> None:
    with pytest.raises(UsageError, match="n takes at most 64 values"):
        numbers("n", ",".join(map(str, range(65))), int)
    with pytest.raises(UsageError, match="n takes at most 64 values"):
        numbers("n", f"1..{10**400}", int)


@given(st.text(max_size=12), st.sampled_from([int, float]))
def test_any_text_is_numbers_or_refused(text: str, kind: type) -> None:
    try:
        found = numbers("n", text, kind)
    except UsageError as error:
        assert str(error)
    else:
        assert found
        assert all(type(value) is kind for value in found)


def test_a_path_is_one_value_whatever_it_contains() -> None:
    assert parse(Parameter("images", "", "a folder"), "/a,b/c..d") == ["/a,b/c..d"]


def test_choices_are_taken_apart_and_checked_one_by_one() -> None:
    parameter = Parameter("wait", "no", "wait", choices=("no", "yes"))
    assert parse(parameter, "yes,no") == ["yes", "no"]
    with pytest.raises(ValueError, match="wait is one of no, yes"):
        parse(parameter, "yes,maybe")


@pytest.mark.parametrize("text", ["inf", "-inf", "1e40", "-1e40", "1e-70", "1,1e40", "1e29..1e31"])
def test_a_number_that_no_journal_may_hold_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"x must be 0 or between 1e-60 and 1e\+30 in size, not"):
        parse(Parameter("x", 1.0, "any number"), text)
    assert parse(Parameter("x", 1.0, "any number"), "0,-1e30") == [0.0, -1e30]


@given(st.lists(st.integers(1, 7), min_size=1, max_size=3))
def test_a_grid_is_whole_and_begins_with_its_corners(sizes: list[int]) -> None:
    axes = {f"p{i}": list(range(size)) for i, size in enumerate(sizes)}
    grid = coarse_to_fine(axes)
    expected = 1
    for size in sizes:
        expected *= size
    assert len({tuple(place.items()) for place in grid}) == len(grid) == expected
    corners = 2 ** sum(size > 1 for size in sizes)
    for place in grid[:corners]:
        assert all(place[f"p{i}"] in (0, size - 1) for i, size in enumerate(sizes))
