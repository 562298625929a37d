"""The answer of a process that runs code of others, checked where it is read.

The process is not trusted: its answer may be garbled, of a wrong shape, or hold text that steers a
terminal.
"""

from typing import TypeVar

import msgspec

from ..text.sanitize import printable_json, shown
from .reason import Reason

LONGEST = 600  # characters of a message

T = TypeVar("T")


class Unreadable(Exception):  # the message says what was expected
    """The line is no answer of the expected shape."""


class Failure(msgspec.Struct, frozen=True):
    """Why a request failed; `fatal` if the process cannot go on after it."""

    code: str
    message: str
    hint: str | None
    fatal: bool

    @property
    def reason(self) -> Reason:
        hint = self.hint and shown(self.hint, LONGEST)
        return Reason(shown(self.code, 60), shown(self.message, LONGEST), hint)


class _Reply(msgspec.Struct):
    """One of the two."""

    ok: msgspec.Raw = msgspec.Raw()
    error: Failure | None = None


def read(line: bytes, kind: type[T]) -> T | Failure:
    """The result in `line`, or why there is none; Unreadable if it is neither."""
    try:
        reply = msgspec.json.decode(printable_json(line), type=_Reply)
        if (reply.error is None) != bool(bytes(reply.ok)):
            raise Unreadable("expected either `ok` or `error`")
        return reply.error or msgspec.json.decode(reply.ok, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(shown(str(error))) from error
