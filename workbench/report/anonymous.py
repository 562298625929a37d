"""Replaces names of persons, machines, cards and files in documents.

A name becomes its kind and a hash, salted for this machine, so that reports anonymised on the same
machine can be compared.
"""

import getpass
import hashlib
import os
import re
import secrets
import shlex
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from tempfile import NamedTemporaryFile
from typing import Any

import msgspec

from ..catalog.files import BACKEND_FOLDER, BUILT_IN, UNLISTED
from ..files import read
from ..records.document import Document
from ..records.machine import GpuProcess, Machine
from ..records.verdict import CHOICES
from ..stats.objectives import OBJECTIVES
from .candidate import ENDED
from .from_document import report_of
from .journal import runs_folder
from .report import Report

SALT_BYTES = 32
OURS = {*ENDED, *CHOICES, *OBJECTIVES}  # words that a document must contain unchanged
NAMING = ("--model", "--inputs", "--torch", "--function", "--trace", "--save-best", "--scenarios")
_HOME = re.compile(r"(?:/home|/Users)/([^/\s:;,'\"]+)")
_PATH = (
    r"(?<=['\"])~?/(?!/)[^'\"\n]+"  # in quotation marks, where it may hold a space
    r"|(?:(?<![\w\]/.~-])(?:~\w*|[.]{1,2})?/(?!/)|/(?:home|Users)/)[^\s'\"`]*[^\s'\"`.,:;)\]]"
    r"|(?:[\w.-]+/)*[\w.-]*\w[.](?:py|onnx|pt2?|pth|npz|toml|jsonl?|csv)\b"
)
# Paths that are the same on every machine, unless they contain the id of a container or a disk.
_SYSTEM = re.compile(
    r"/(?:dev/(?!shm/)|run/(?!media/|user/)|usr/(?!local/|src/)"
    r"|(?:proc|sys|etc|lib(?:32|64|exec)?)/)"
    r"(?!.*[0-9a-f]{12})"
)
_UUID = r"\b(?:GPU|MIG)-[0-9a-fA-F][0-9a-fA-F-]{3,}\b"


class Pseudonyms:
    """Replaces the names of a machine, and those in a document, in any structure."""

    def __init__(self, machine: Machine | None, document: Document | None = None) -> None:
        self._salt = salt()
        self._people = _people(machine, document)
        self._words = self._people | (_files(document) if document is not None else {})
        self._names = re.compile(_any_of(self._people))
        self._exact: dict[str, str] = {}  # ids and labels of cases, which follow from their parts
        self._private = re.compile(rf"(?P<uuid>{_UUID})|{_any_of(self._words)}|{_PATH}")
        for measured in document.measurements if document is not None else ():
            case = self(measured.case)
            self._exact |= {measured.case.id: case.id, measured.case.label: case.label}

    def __call__(self, value: Any) -> Any:
        """`value` with every name in its texts replaced."""
        match value:
            case str():
                return self._exact.get(value) or self._text(value)
            case dict():
                return {self(key): self(each) for key, each in value.items()}
            case [float(), *_]:
                return value
            case list() | tuple():
                return type(value)(map(self, value))
            case GpuProcess():
                return msgspec.structs.replace(value, name=None, user=None)
            case msgspec.Struct():
                parts = {name: self(getattr(value, name)) for name in value.__struct_fields__}
                if isinstance(value, Machine):
                    parts["hostname"] = self._hashed("host", value.hostname)
                return msgspec.structs.replace(value, **parts)
            case _ if is_dataclass(value):
                parts = {each.name: self(getattr(value, each.name)) for each in fields(value)}
                return replace(value, **parts)  # type: ignore[type-var]
        return value

    def _text(self, text: str) -> str:
        """Replace the names in a text, unless it is one word that is also the name of a person or a
        machine: then it is one of ours, such as a status."""
        is_ours = text in OURS or (text in self._people and "/" not in text)
        return text if is_ours else self._private.sub(self._pseudonym, text)

    def _pseudonym(self, found: re.Match[str]) -> str:
        name = found.group()
        if _SYSTEM.match(name) and name not in self._words:
            return self._names.sub(lambda m: self._hashed(self._people[m[0]], m[0]), name)
        return self._hashed(name[:3] if found["uuid"] else self._words.get(name, "file"), name)

    def _hashed(self, kind: str, name: str) -> str:
        digest = hashlib.blake2b(name.encode("utf-8", "replace"), key=self._salt, digest_size=4)
        return f"{kind}-{digest.hexdigest()}"


def _any_of(words: Iterable[str]) -> str:
    """A pattern for any of these whole words, the longest first."""
    longest_first = sorted(filter(None, words), key=len, reverse=True)
    found = "|".join(map(re.escape, longest_first)) or "(?!)"
    return rf"(?<![A-Za-z0-9])(?:{found})(?![A-Za-z0-9])"


def anonymised(report: Report) -> Report:
    """The report of the same run without names."""
    document = report.document()
    return report_of(Pseudonyms(document.machine, document)(document))


def salt() -> bytes:
    """The salt of this machine, made at first use; a new one each time if it cannot be stored."""
    path = runs_folder().with_name("salt")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent) as file:  # its mode is 0600
            file.write(secrets.token_bytes(SALT_BYTES))
            file.flush()
            os.link(file.name, path)  # atomic, and never replaces an earlier one
    with suppress(OSError):
        if len(kept := read.whole(path, SALT_BYTES)) == SALT_BYTES:
            return kept
    return secrets.token_bytes(SALT_BYTES)


def _people(machine: Machine | None, document: Document | None) -> dict[str, str]:
    """The names of users and of the machine, each with its kind."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no such user in a container
        user = ""
    text = str(document and (document.tool, document.software, document.warnings))
    gpus = machine.gpus if machine is not None else []
    users = {process.user or "" for gpu in gpus for process in gpu.processes or []}
    users |= {user, os.environ.get("SUDO_USER", ""), *_HOME.findall(text)}
    words = dict.fromkeys(users - {"root"}, "user")  # root is an ordinary word
    hostname = machine.hostname if machine is not None else ""
    return words | {hostname.partition(".")[0]: "host", hostname: "host"}


def _files(document: Document) -> dict[str, str]:
    """The names of the user's own files that texts hold without a folder or an ending."""
    cases = [measured.case for measured in document.measurements]
    folders = (BUILT_IN, BUILT_IN / BACKEND_FOLDER)
    known = {*UNLISTED, *(file.stem for folder in folders for file in folder.glob("*.py"))}
    found = {name for case in cases for name in (case.workload, case.backend)} - known
    with suppress(ValueError):  # an unpaired quotation mark
        for option, text in pairwise(shlex.split(document.tool.command)):
            name = text.rpartition("/")[2]
            found |= {text, name, name.partition(":")[0]} if option in NAMING else set()
            found |= {part for part in (text, *text.split()) if "/" in part.strip("/")}
    return {name: "file" for name in found if not re.fullmatch(_PATH, name) or _SYSTEM.match(name)}
