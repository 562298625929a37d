"""Errors of NVML and CUDA in words, with remedies (assets/driver_errors.toml)."""

from __future__ import annotations

import tomllib
from functools import cache

import msgspec

from ... import assets
from ...records.reason import Reason

NVML_INVALID_ARGUMENT = 2
NVML_NOT_SUPPORTED = 3
NVML_NO_PERMISSION = 4
NVML_FUNCTION_NOT_FOUND = 13
NVML_ARGUMENT_VERSION_MISMATCH = 25
NVML_DEPRECATED = 26
CUDA_NO_DEVICE = 100

# Values of `Reason.code` that mean "there is nothing here", not "something is broken".
ABSENT = frozenset(
    {"library_missing", "driver_not_loaded", "no_gpu", "no_device", "unsupported_platform"}
)


class Meaning(msgspec.Struct, frozen=True):
    code: str
    message: str
    hint: str | None = None
    container_hint: str | None = None  # replaces `hint` inside a container


class _File(msgspec.Struct, frozen=True):
    hints: dict[str, str]
    meanings: dict[str, dict[str, Meaning]]  # by API, then by code


@cache
def _file() -> _File:
    text = assets.path("driver_errors.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), _File)


def nvml_text(code: int) -> str:
    """One line for `unavailable`: plain words, then the code to search for."""
    meaning = _file().meanings["NVML"].get(str(code))
    return f"{meaning.message} (NVML {code})" if meaning else f"NVML error {code}"


def nvml_reason(code: int, *, in_container: bool) -> Reason:
    return _reason("NVML", code, in_container)


def cuda_reason(code: int, *, in_container: bool) -> Reason:
    return _reason("CUDA", code, in_container)


def _reason(api: str, code: int, in_container: bool) -> Reason:
    file = _file()
    meaning = file.meanings[api].get(str(code))
    if meaning is None:
        return Reason(
            f"{api.lower()}_error_{code}", f"{api} error {code}", file.hints["kernel_log"]
        )
    hint = (meaning.container_hint if in_container else None) or meaning.hint
    hint = file.hints.get(hint, hint) if hint else None
    return Reason(meaning.code, f"{meaning.message} ({api} {code})", hint)


def library_missing(library: str, *, in_container: bool) -> Reason:
    hint = _file().hints["container" if in_container else "driver"]
    return Reason("library_missing", f"{library} is not installed", hint)


def library_broken(library: str, detail: str) -> Reason:
    hint = "reinstall the NVIDIA driver's libraries for this architecture"
    return Reason("library_broken", f"{library} cannot be loaded: {detail}", hint)


def missing_capability(*, in_container: bool) -> str:
    """The remedy where CUDA works and NVML is missing."""
    return _file().hints["container"] if in_container else "install the driver's libnvidia-ml.so.1"
