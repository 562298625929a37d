"""An answer is either of the expected shape, or a failure, or unreadable."""

import json

import pytest

from workbench.pool.answers import Block, Hello, Prepared, Profile, SmallProbe
from workbench.records.reply import LONGEST, Unreadable, read

ERROR = {"code": "failed", "message": "it broke", "hint": None, "fatal": False}
GARBLED = [
    b"",
    b"no JSON",
    b"null",
    b"[1, 2]",
    b"{}",
    b'{"ok": NaN}',
    b'{"ok": {"versions": {"a": "\xff"}}}',
    b'{"ok": {"versions": {"a": 1}}}',
    b'{"ok": {"versions": 3}}',
    b'{"ok": 3}',
    b'{"ok": {}, "error": {}}',
    b'{"error": "it broke"}',
    b'{"error": {"code": 1, "message": "", "hint": null, "fatal": false}}',
    b'{"error": {"message": "it broke"}}',
    b'{"ok": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    json.dumps({"ok": {"versions": {}}, "error": ERROR}).encode(),
]


@pytest.mark.parametrize("line", GARBLED, ids=lambda line: repr(line[:40]))
def test_what_is_no_answer_cannot_be_read(line: bytes) -> None:
    with pytest.raises(Unreadable) as caught:
        read(line, Hello)
    assert str(caught.value).isprintable()


def test_an_answer_is_read() -> None:
    answer = read(b'{"ok": {"versions": {"torch": "2.6"}}}', Hello)
    assert isinstance(answer, Hello) and answer.versions == {"torch": "2.6"}


def test_a_failure_is_one_short_printable_line() -> None:
    text = "\x1b[31mred\n" + "x" * 5_000_000
    line = json.dumps({"error": {**ERROR, "message": text, "hint": text, "code": text}}).encode()
    failure = read(line, Hello)
    reason = failure.reason
    for found in (reason.code, reason.message, reason.hint or ""):
        assert found.isprintable() and len(found) <= LONGEST + 3


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (SmallProbe, {"case_s": 1.0, "other_s": 0.0}),  # their ratio is asked for
        (Block, {"samples_s": [], "lead_in_s": [], "loss": None, "clocks": None, "figures": {},
                 "gap": False, "began_s": 0.0, "settled_s": 0.0, "ended_s": 0.0}),
        (Prepared, {"setup": {"build_s": "long"}}),
    ],
)  # fmt: skip
def test_numbers_that_nothing_can_be_made_of_are_unreadable(kind, fields) -> None:
    with pytest.raises(Unreadable):
        read(json.dumps({"ok": fields}).encode(), kind)


def test_names_in_a_block_are_printable() -> None:
    fields = {"samples_s": [1.0], "lead_in_s": [], "loss": None, "clocks": None, "gap": False,
              "figures": {"\x1b[31m\nred": 1.0},
              "began_s": 0.0, "settled_s": 0.0, "ended_s": 0.0}  # fmt: skip
    block = read(json.dumps({"ok": fields}).encode(), Block)
    assert isinstance(block, Block) and all(name.isprintable() for name in block.figures)


@pytest.mark.parametrize("event", [{"ts": "now"}, {"ts": 1, "dur": []}, {"ts": 1, "pid": []}])
def test_a_profile_with_events_that_have_no_time_cannot_be_read(event: dict[str, object]) -> None:
    profile = {"operators": [], "total_s": 1.0, "fallback_s": 0.0, "events": [event]}
    with pytest.raises(Unreadable):
        read(json.dumps({"ok": profile}).encode(), Profile)
