"""JSON of any text, even of file names that are not UTF-8."""

import re
from typing import Any

import msgspec

_encode = msgspec.json.Encoder(enc_hook=list).encode  # samples are kept as arrays
_BYTE = re.compile("[\udc80-\udcff]")  # a byte that is not UTF-8, as PEP 383 keeps it in a string


def encode(value: Any) -> bytes:
    """`value` as JSON; a byte that is not UTF-8 becomes `\\xff`, as in a shell's $'...'."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_printable(msgspec.to_builtins(value, enc_hook=_plain)))


def _plain(value: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else list(value)


def _printable(value: Any) -> Any:
    if isinstance(value, dict):
        return {_printable(key): _printable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(each) for each in value]
    if not isinstance(value, str):
        return value
    shown = _BYTE.sub(lambda found: f"\\x{ord(found.group()) - 0xDC00:02x}", value)
    return shown.encode("utf-8", "backslashreplace").decode()
