"""Whatever a model does to onnx or onnxruntime, as one clear line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from workbench.contract import WorkloadError

LONGEST = 300  # characters of a message
MOST_READ = 4000  # of an exception's text
MEMORY_WORDS = ("bad_alloc", "Failed to allocate memory", "can't allocate", "Unable to allocate")
AGAIN = "download or export it again; onnx.checker.check_model(path) may tell more"
# What ONNX Runtime puts before and into its messages: codes, places in its source, signatures.
_NOISE = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from .*? failed:\s*|Fatal error: "
)
_SOURCE = re.compile(r"(?:Exception during \w+: )?/\S+?\.(?:cc|h):\d+ ")
_SHORT_SOURCE = re.compile(r"\w+\.(?:cc|h):\d+ \w+ ")
_STATUS = re.compile(
    r"Non-zero status code returned while running (\w+) node\. Name:'(.*?)' Status Message: "
)


def bad_model(message: str, hint: str = AGAIN) -> WorkloadError:
    return WorkloadError(one_line(message), code="bad_model", hint=hint)


def one_line(text: str, longest: int = LONGEST) -> str:
    """`text` without line breaks, control characters and lone surrogates, cut where it is long."""
    whole = " ".join(text.encode("utf-8", "replace").decode("utf-8").split())
    whole = "".join(character if character.isprintable() else "?" for character in whole)
    return whole if len(whole) <= longest else whole[: longest - 3] + "..."


def said(error: BaseException) -> str:
    """What a library says, without the places in its source and the signatures of functions."""
    text = _NOISE.sub("", one_line(str(error)[:MOST_READ], MOST_READ))
    while place := _SOURCE.search(text):
        text = text[: place.start()] + _after_signature(text[place.end() :])
    text = _STATUS.sub(r"\1 node \2: ", _SHORT_SOURCE.sub("", text))
    return one_line(text) or type(error).__name__


def _after_signature(text: str) -> str:
    """What follows the first balanced parentheses."""
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == ")" and depth == 0:
            return text[position + 1 :].removeprefix(" const").lstrip()
    return text


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or any(word in str(error) for word in MEMORY_WORDS)


@contextmanager
def clear_errors(what: str, code: str = "bad_model") -> Iterator[None]:
    """Turn what onnx and onnxruntime raise within into a WorkloadError that begins with `what`."""
    try:
        yield
    except ModuleNotFoundError:
        raise
    except WorkloadError as error:
        hint = AGAIN if error.hint is None else one_line(error.hint)
        raise WorkloadError(one_line(str(error)), code=error.code, hint=hint) from error
    except Exception as error:
        if is_out_of_memory(error):
            raise WorkloadError(
                f"{what}: not enough memory",
                code="no_memory",
                hint="give it smaller inputs by --shape or --batch, or free memory",
            ) from error
        raise WorkloadError(one_line(f"{what}: {said(error)}"), code=code, hint=AGAIN) from error
