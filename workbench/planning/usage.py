"""The error for a request that cannot be met."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from ..files.write import NULL, Target, resolved
from ..text.sanitize import shown


class UsageError(Exception):
    """The request cannot be met; the message is one line that names the valid choices."""


def unknown(noun: str, given: str, choices: Iterable[str]) -> UsageError:
    """`unknown workload 'matmull'; did you mean matmul? Choices: ...`."""
    import difflib  # slow to import, and only wrong names need it

    listed = list(dict.fromkeys(choices))  # a workload and a scenario may share a name
    close = difflib.get_close_matches(given, listed, n=1)
    hint = f"; did you mean {close[0]}?" if close else "."
    named = shown(repr(given), 60)
    return UsageError(f"unknown {noun} {named}{hint} Choices: {', '.join(listed)}")


def check_known(noun: str, given: Iterable[str], known: Collection[str]) -> None:
    for each in given:
        if each not in known:
            raise unknown(noun, each, known)


def target(option: str, path: Path, *, opened: bool = False) -> Target:
    """The file or stream that an option names; UsageError if it cannot be written.

    `opened`: a stream is opened now, since this process will write it.
    """
    try:
        found = Target(path)
        if opened:
            found.open()
    except OSError as error:
        raise UsageError(f"{option}: {path} cannot be written: {error.strerror}") from None
    return found


def new_folder(option: str, path: Path) -> Path:
    """The folder that an option names; UsageError unless it can be made."""
    try:
        found = resolved(path)
        found.mkdir()
        found.rmdir()
    except OSError as error:
        text = f"{path} cannot be written: {error.strerror}; name a new folder"
        raise UsageError(f"{option}: {text}") from None
    return found


def check_apart(outputs: Mapping[str, str | None], inputs: Mapping[str, str | None] = {}) -> None:
    """Refuse two options that name one file, since a result would replace an input or a result."""
    options = {Path(name).resolve(): option for option, name in inputs.items() if name is not None}
    for option, name in outputs.items():
        if name is not None and Path(name) != NULL:
            first = options.setdefault(Path(name).resolve(), option)
            if first != option:
                raise UsageError(f"{first} and {option} lead to one file: {name}; name two files")
