"""Errors of NVML and CUDA in words, with remedies (assets/driver_errors.toml)."""

import platform
import re
from functools import cache

import msgspec

from ... import assets
from ...records.reason import Reason
from ..host.system import container

NVML_INVALID_ARGUMENT = 2
NVML_NOT_SUPPORTED = 3
NVML_NO_PERMISSION = 4
CUDA_NO_DEVICE = 100

# Values of `Reason.code` that mean "there is nothing here", not "something is broken".
ABSENT = frozenset(
    {"library_missing", "driver_not_loaded", "no_gpu", "no_device", "unsupported_platform"}
)


class Meaning(Reason, frozen=True):
    container_hint: str | None = None  # replaces `hint` inside a container


class _File(msgspec.Struct, frozen=True):
    hints: dict[str, str]
    meanings: dict[str, dict[str, Meaning]]  # by API, then by code


@cache
def _file() -> _File:
    return msgspec.toml.decode(assets.path("driver_errors.toml").read_bytes(), type=_File)


def nvml_text(code: int) -> str:
    """One line for `unavailable`: plain words, and the code to search for."""
    return error_reason("NVML", code).message


def nvml_hint(text: str) -> str | None:
    """The remedy of the error whose `nvml_text` this is; None if there is none."""
    code = re.search(r"\(NVML (\d+)\)$", text)
    return error_reason("NVML", int(code[1])).hint if code else None


def error_reason(api: str, code: int) -> Reason:
    """An error of "NVML" or "CUDA" with its remedy, which may differ inside a container."""
    file = _file()
    meaning = file.meanings[api].get(str(code))
    if meaning is None:
        name, text = f"{api.lower()}_error_{code}", f"{api} error {code}"
        return Reason(name, text, file.hints["kernel_log"])
    hint = (meaning.container_hint if container() else None) or meaning.hint
    return Reason(meaning.code, f"{meaning.message} ({api} {code})", hint and _hint(hint))


def loading_failure(library: str, error: OSError) -> Reason:
    """Why `library` does not load, from the message of dlopen, which has no code."""
    if str(error).startswith(f"{library}: cannot open shared object file: No such file"):
        hint = _hint("container" if container() else "driver")
        return Reason("library_missing", f"{library} is not installed", hint)
    return library_broken(library, str(error))


def _hint(hint: str) -> str:
    """The sentence of that name in [hints], else `hint` itself."""
    hints, kernel = _file().hints, platform.release().lower()
    if hint == "container":
        return hints.get(container() or "", hints[hint])
    if hint in ("driver", "reload") and "microsoft" in kernel:
        hint = "wsl"
    elif hint == "driver" and "tegra" in kernel:
        hint = "jetson"
    return hints.get(hint, hint)


def library_broken(library: str, detail: str) -> Reason:
    hint = "reinstall the NVIDIA driver's libraries for this architecture"
    return Reason("library_broken", f"{library} cannot be loaded: {detail}", hint)
