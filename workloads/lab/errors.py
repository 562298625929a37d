"""Messages of onnx and onnxruntime: their errors in one clear line, their output silenced."""

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Iterator

from workbench.contract import WorkloadError
from workbench.text.sanitize import shown
from workbench.worker.failures import is_out_of_memory
from workbench.worker.libraries import onnxruntime

from .._shared.session import SILENT

LONGEST = 300  # characters of a message
MOST_READ = 4000  # characters of an exception's text
AGAIN = "download or export it again; onnx.checker.check_model(path) may say more"
_NOISE = (  # patterns in ONNX Runtime's messages, with their replacements
    (r"\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from .*? failed:\s*|Fatal error: ", ""),
    # A source location, with the function's signature.
    (r"(?:Exception during \w+: )?/\S+?\.(?:cc|h):\d+ (?:.*?\)(?: const)? )?", ""),
    (
        r"Non-zero status code returned while running (\w+) node\. Name:'(.*?)' Status Message: ",
        r"\1 node \2: ",
    ),
    (r"\w+\.(?:cc|h):\d+ \w+ ", ""),
)


def bad_model(message: str, hint: str = AGAIN) -> WorkloadError:
    return WorkloadError(one_line(message), code="bad_model", hint=hint)


def bad_input(message: str, hint: str) -> WorkloadError:
    """The inputs, shapes or batch that the user gave do not fit the model."""
    return WorkloadError(one_line(message), code="bad_input", hint=one_line(hint))


def one_line(text: str, longest: int = LONGEST) -> str:
    """`text` without line breaks, with escapes for unprintable characters, cut where it is long."""
    return shown(" ".join(text.split()), longest)


def said(error: BaseException) -> str:
    """The message of a library's exception, without source locations and signatures."""
    text = one_line(str(error)[:MOST_READ], MOST_READ)
    for pattern, kept in _NOISE:
        text = re.sub(pattern, kept, text)
    return one_line(text) or type(error).__name__


@contextlib.contextmanager
def clear_errors(what: str, code: str = "bad_model", hint: str = AGAIN) -> Iterator[None]:
    """Turn exceptions of onnx and onnxruntime into a WorkloadError that begins with `what`."""
    try:
        yield
    except ModuleNotFoundError:
        raise
    except WorkloadError as error:
        hint = hint if error.hint is None else one_line(error.hint)
        raise WorkloadError(one_line(str(error)), code=error.code, hint=hint) from error
    except Exception as error:
        why = said(error)
        if is_out_of_memory(error):
            why, code = "not enough memory", "no_memory"
            hint = "choose smaller inputs with --shape or --batch, or free memory"
        raise WorkloadError(one_line(f"{what}: {why}"), code=code, hint=hint) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress logs, warnings and output of the tools."""
    onnxruntime.set_default_logger_severity(SILENT)
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
