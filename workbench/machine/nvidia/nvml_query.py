"""Asking NVML: the one module that imports pynvml."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ...records.reason import Reason
from .driver_errors import (
    NVML_ARGUMENT_VERSION_MISMATCH,
    NVML_DEPRECATED,
    NVML_FUNCTION_NOT_FOUND,
    NVML_NOT_SUPPORTED,
    nvml_reason,
    nvml_text,
)

# This driver lacks this form of a call; an older form of it may work.
_FORM_MISSING = (NVML_FUNCTION_NOT_FOUND, NVML_ARGUMENT_VERSION_MISMATCH, NVML_DEPRECATED)

Call = tuple[Any, ...]  # a function's name in pynvml, then its arguments


class Query:
    """Asks pynvml; every failure comes back as `(None, reason)`."""

    def __init__(self, pynvml: ModuleType) -> None:
        self._pynvml = pynvml

    def ask(self, *forms: Call) -> tuple[Any, str | None]:
        """The answer of the first form of a call that this driver has, newest form first."""
        value, failure = self.ask_code(*forms)
        if isinstance(failure, int):
            return None, nvml_text(failure)
        return value, failure

    def ask_code(self, *forms: Call) -> tuple[Any, int | str | None]:
        """Like `ask`, but an NVML error keeps its code (`NVMLError` itself is unhashable)."""
        failures: list[int | str] = []
        for name, *arguments in forms:
            function = getattr(self._pynvml, name, None)
            if function is None:
                failures.append(f"the installed nvidia-ml-py has no {name}")
                continue
            try:
                return function(*arguments), None
            except self._pynvml.NVMLError as error:
                failures.append(int(error.value))
                if error.value not in (*_FORM_MISSING, NVML_NOT_SUPPORTED):
                    break
            except UnicodeDecodeError:
                failures.append("NVML's text is not valid UTF-8")
                break
        telling = [f for f in failures if isinstance(f, int) and f not in _FORM_MISSING]
        return None, (telling or failures)[-1]


def connect(*, in_container: bool) -> tuple[Query, int] | Reason:
    """NVML, initialised, and how many GPUs it lists; or why it cannot be used."""
    try:
        import pynvml
    except ImportError as error:
        return Reason("pynvml_missing", str(error), "`pip install nvidia-ml-py`")
    if not hasattr(pynvml, "_nvmlGetFunctionPointer"):
        hint = "`pip uninstall pynvml; pip install --force-reinstall nvidia-ml-py`"
        return Reason("pynvml_foreign", "the module pynvml is not nvidia-ml-py's", hint)
    query = Query(pynvml)
    _, failure = query.ask_code(("nvmlInit",))
    count = 0
    if failure is None:
        count, failure = query.ask_code(("nvmlDeviceGetCount",))
    if failure is not None:
        code = failure if isinstance(failure, int) else NVML_FUNCTION_NOT_FOUND
        return nvml_reason(code, in_container=in_container)
    return query, int(count)
