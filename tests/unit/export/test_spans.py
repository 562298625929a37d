"""Toned text: width in cells, wrapping, cutting, tables in a file, and bars of characters."""

from hypothesis import given, strategies as st

from workbench.export.view import glyphs
from workbench.export.view.spans import (
    Text,
    fact,
    facts_lines,
    join,
    plain_lines,
    unbroken,
)
from workbench.export.view.table import plain_cells, table_lines

texts = st.lists(
    st.tuples(st.text("ab 日±\u0301", max_size=12), st.sampled_from(["", "dim", "strong cpu"]))
).map(lambda spans: Text.of(*spans))


@given(texts, st.integers(0, 20))
def test_a_cut_text_fits_and_keeps_its_beginning(text: Text, width: int) -> None:
    cut = text.truncate(width)
    assert cut.cell_length <= max(width, 0)
    assert cut == text or cut.plain == "" or text.plain.startswith(cut.plain[:-1])


@given(texts, st.integers(2, 20))
def test_wrapped_lines_fit_and_lose_nothing_but_spaces(text: Text, width: int) -> None:
    lines = text.wrap(width)
    assert all(line.cell_length <= width for line in lines)
    assert "".join(line.plain for line in lines).replace(" ", "") == text.plain.replace(" ", "")


@given(texts, st.integers(2, 20))
def test_every_character_keeps_its_tone(text: Text, width: int) -> None:
    def toned(found: Text) -> list[tuple[str, str]]:
        return [(c, tone) for part, tone in found.spans for c in part if not c.isspace()]

    assert [pair for line in text.wrap(width) for pair in toned(line)] == toned(text)


def test_words_are_broken_only_where_they_are_wider_than_the_line() -> None:
    command = "run it: `workbench advise row --what-if some-device`"
    for width in range(20, 60):
        lines = [line.plain for line in Text.of(command).wrap(width)]
        assert " ".join(lines).endswith("--what-if some-device`")
    assert [line.plain for line in Text.of("abcdef gh").wrap(4)] == ["abcd", "ef", "gh"]
    phrase = unbroken("logical 2 (/sys/online)")
    lines = [line.plain for line in Text.of(f"{phrase}, affinity").wrap(16)]
    assert lines == [unbroken("logical 2 "), "(/sys/online),", "affinity"]
    assert [line.plain for line in Text.of("a\n\nb").wrap(4)] == ["a", "", "b"]


def test_wide_characters_take_two_cells_and_combining_ones_none() -> None:
    assert Text.of("日本").cell_length == 4
    assert Text.of("e\u0301").cell_length == 1
    assert Text.of("น้ำ ที่").cell_length == 4, "vowels and tones stand above a letter"
    assert Text.of("日本").truncate(3).plain == "日…"


def test_texts_are_joined_with_their_tones() -> None:
    both = join([Text.of(("a", "cpu")), Text.of("b")], ", ")
    assert both.spans == (("a", "cpu"), (", ", ""), ("b", ""))


def test_facts_hang_below_their_labels() -> None:
    lines = facts_lines([fact("why", "one two three"), fact("", "four")], 12, 5)
    assert [line.plain for line in lines] == ["why  one two", "     three", "four"]
    wide = facts_lines([fact("出力", "error"), fact("y", "error")], 20, 6)
    assert [line.plain for line in wide] == ["出力  error", "y     error"]


def test_a_table_in_a_file_loses_no_column() -> None:
    long = "x" * 300
    lines = table_lines(*plain_cells(("a", "bb", ""), [("xxx", "1", long), ("y", "22", "")], {1}))
    assert plain_lines(lines).splitlines() == ["a    bb", f"xxx   1  {long}", "y    22"]


def test_plain_text_stays_in_its_columns_in_ascii() -> None:
    assert plain_lines([Text.of("1.2 ms  ±3%  ─━░ 30 °C  ")]) == "1.2 ms +-3%  -=. 30 C"


def test_a_bar_shows_whatever_is_not_nothing_and_is_full_only_at_the_whole() -> None:
    assert glyphs.bar(0.0, 4) == ""
    assert glyphs.bar(0.001, 4) == "╸"
    assert glyphs.bar(0.999, 4) == "━━━╸"
    assert glyphs.bar(1.0, 4) == "━━━━"
    assert glyphs.gauge(0.5, 4) == "██░░"


def test_a_sparkline_averages_many_values_and_repeats_few() -> None:
    assert glyphs.sparkline([], 8, 0.0, 1.0) == ""
    assert glyphs.sparkline([1.0, 0.0], 8, 0.0, 1.0) == "████▁▁▁▁"
    assert glyphs.sparkline([1.0, 1.0, 0.0, 0.0], 2, 0.0, 1.0) == "█▁"
    assert glyphs.sparkline([0.5], 3, 0.5, 0.5) == "▁▁▁"
