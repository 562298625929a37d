"""Asking NVML: the one module that imports pynvml."""

from types import ModuleType
from typing import Any, NamedTuple

from ...records.reason import Reason
from .driver_errors import NVML_NOT_SUPPORTED, error_reason, nvml_text

_FUNCTION_NOT_FOUND, _ARGUMENT_VERSION_MISMATCH, _DEPRECATED = 13, 25, 26
# Errors after which an older form of the call may work with this driver.
_FORM_MISSING = (_FUNCTION_NOT_FOUND, _ARGUMENT_VERSION_MISMATCH, _DEPRECATED)

Call = tuple[Any, ...]  # a function's name in pynvml, then its arguments


class Failure(NamedTuple):
    """Why a call gave nothing, in words, with NVML's code if NVML was reached."""

    text: str
    code: int | None = None


class Query:
    """Asks pynvml; failures are returned, not raised."""

    def __init__(self, pynvml: ModuleType) -> None:
        self._pynvml = pynvml

    def ask(self, *forms: Call) -> tuple[Any, Failure | None]:
        """The answer of the first form of a call that this driver has, newest form first."""
        failures: list[Failure] = []
        for name, *arguments in forms:
            function = getattr(self._pynvml, name, None)
            if function is None:
                failures.append(Failure(f"the installed nvidia-ml-py has no {name}"))
                continue
            try:
                return function(*arguments), None
            except self._pynvml.NVMLError as error:
                code = int(error.value)
                failures.append(Failure(nvml_text(code), code))
                if code not in (*_FORM_MISSING, NVML_NOT_SUPPORTED):
                    break
            except UnicodeDecodeError:
                failures.append(Failure("NVML's text is not valid UTF-8"))
                break
        telling = [each for each in failures if each.code not in (None, *_FORM_MISSING)]
        return None, (telling or failures)[-1]


def connect() -> tuple[Query, int] | Reason:
    """NVML, initialised, and the number of its GPUs; or why it cannot be used."""
    try:
        import pynvml
    except ImportError as error:
        return Reason("pynvml_missing", str(error), "`pip install nvidia-ml-py`")
    if not hasattr(pynvml, "_nvmlGetFunctionPointer"):
        hint = "`pip uninstall pynvml; pip install --force-reinstall nvidia-ml-py`"
        return Reason("pynvml_foreign", "the module pynvml is not nvidia-ml-py's", hint)
    query = Query(pynvml)
    count, failure = query.ask(("nvmlInit",))
    if failure is None:
        count, failure = query.ask(("nvmlDeviceGetCount",))
    if failure is not None:
        return error_reason("NVML", failure.code or _FUNCTION_NOT_FOUND)
    return query, int(count)
