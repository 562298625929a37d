"""Whatever a model does to onnx or onnxruntime, as one clear line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from workbench.contract import WorkloadError

LONGEST = 300  # characters of a message
MEMORY_WORDS = ("bad_alloc", "Failed to allocate memory", "can't allocate", "Unable to allocate")
_PREFIX = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : ")
_LOAD = re.compile(r"Load model from .*? failed:\s*")
_SOURCE = re.compile(r"(Exception during \w+: )?/\S+?\.(?:cc|h):\d+ ")


def bad_model(message: str, hint: str | None = None) -> WorkloadError:
    return WorkloadError(one_line(message), code="bad_model", hint=hint)


def one_line(text: str) -> str:
    """`text` without line breaks, control characters and lone surrogates, cut where it is long."""
    whole = " ".join(text.encode("utf-8", "replace").decode("utf-8").split())
    whole = "".join(character if character.isprintable() else "?" for character in whole)
    return whole if len(whole) <= LONGEST else whole[: LONGEST - 3] + "..."


def said(error: BaseException) -> str:
    """What a library says, without the place in its source and the signature of the function."""
    text = _LOAD.sub("", _PREFIX.sub("", one_line(str(error)[:4000].replace("\n", " "))))
    place = _SOURCE.match(text)
    if place:
        text = _after_signature(text[place.end() :])
    return text.strip() or type(error).__name__


def _after_signature(text: str) -> str:
    """What follows the first balanced parentheses."""
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == ")" and depth == 0:
            return text[position + 1 :].removeprefix(" const") or text
    return text


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or any(word in str(error) for word in MEMORY_WORDS)


@contextmanager
def clear_errors(what: str) -> Iterator[None]:
    """Turn what onnx and onnxruntime raise within into a WorkloadError that begins with `what`."""
    try:
        yield
    except ModuleNotFoundError:
        raise
    except WorkloadError as error:
        hint = None if error.hint is None else one_line(error.hint)
        raise WorkloadError(one_line(str(error)), code=error.code, hint=hint) from error
    except Exception as error:
        if is_out_of_memory(error):
            raise WorkloadError(
                f"{what}: not enough memory",
                code="no_memory",
                hint="give it smaller inputs by --shape or --batch, or free memory",
            ) from error
        raise bad_model(f"{what}: {said(error)}") from error
