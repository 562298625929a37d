"""The document of `workbench list`, and its text."""

from typing import Any

import msgspec

from .. import catalog
from ..contract import Parameter, Variant, WorkloadError
from ..machine.packages.software import StackQuery, package_of
from ..planning import scenarios
from ..planning.scenario import Scenario
from ..records.document import Tool
from .view.spans import PROSE, fact, facts_lines, label_width, listed, plain_lines
from .view.table import UNLIMITED


class ListedWorkload(msgspec.Struct, frozen=True):
    """A workload and the ways to run it."""

    name: str
    title: str
    teaches: str
    parameters: tuple[Parameter, ...]
    variants: tuple[Variant, ...]
    batch: int | None  # the default; None: a step takes no batch


class ListedBackend(msgspec.Struct, frozen=True):
    """A library that can race."""

    name: str
    version: str | None  # None: it is not installed
    install: str  # how to install it


class Catalogue(msgspec.Struct, frozen=True, omit_defaults=True):
    """The document of `list`: scenarios and workloads, or with --backends the libraries."""

    schema_version: int
    tool: Tool
    broken: dict[str, str]  # workload or library to the fault in its file
    scenarios: list[Scenario] = []
    workloads: list[ListedWorkload] = []
    backends: list[ListedBackend] = []


def jobs(head: dict[str, Any], file: str | None = None) -> Catalogue:
    """The workloads, and the scenarios with those of a user's file."""
    rows, _ = scenarios.load_with(file)
    usable, broken = catalog.load_all()
    workloads = [
        ListedWorkload(w.name, w.title, w.teaches, w.parameters, w.variants, w.default_batch)
        for w in usable.values()
    ]
    faults = {name: str(error) for name, error in broken.items()}
    return Catalogue(**head, broken=faults, scenarios=[*rows.values()], workloads=workloads)


def libraries(head: dict[str, Any]) -> Catalogue:
    """The libraries, with their versions here."""
    software, found = StackQuery(None).collect(), Catalogue(**head, broken={}, backends=[])
    for name in catalog.backends():
        try:
            backend = catalog.load_backend(name)
        except WorkloadError as error:
            found.broken[name] = str(error)
            continue
        package = package_of(name, software)
        version = software.packages[package].version if package else None
        found.backends.append(ListedBackend(name, version, backend.install))
    return found


def catalogue_text(found: Catalogue, width: int | None = None) -> str:
    """The scenarios and the workloads, for a terminal of `width` cells or for a file."""
    facts = [fact("", "Scenarios (workbench advise NAME; those on request by name or with --all)")]
    for row in found.scenarios:
        usual = [f"usual advice: {row.textbook.upper()}"] if row.textbook else []
        also = ", ".join([row.workload, *usual, *["on request"] * row.on_request])
        facts.append(fact(row.id, f"{row.question} ({also})"))
    facts.append(fact("", "\nWorkloads (workbench run NAME --set name=value)"))
    for workload in found.workloads:
        texts = [workload.teaches, *map(_parameter, workload.parameters)]
        if workload.batch is not None:
            texts.append(f"--batch: default {workload.batch}")
        facts += listed(workload.name, texts)
    facts += [fact(name, f"cannot be used: {why}") for name, why in found.broken.items()]
    return plain_lines(facts_lines(facts, width or PROSE, label_width(facts)))


def backends_text(found: Catalogue, width: int | None = None) -> str:
    """The libraries, for a terminal of `width` cells or for a file."""
    wide = max(len(each.name) for each in found.backends)
    facts = [fact(f"{'Backend':{wide}}  Version", "Installed by")]
    facts += [
        fact(f"{each.name:{wide}}  {each.version or 'not installed'}", each.install)
        for each in found.backends
    ]
    facts += [fact("", f"{name}: cannot be used: {why}") for name, why in found.broken.items()]
    return plain_lines(facts_lines(facts, width or UNLIMITED, label_width(facts)))


def _parameter(parameter: Parameter) -> str:
    unit = f" {parameter.unit}" if parameter.unit else ""
    allowed = ", ".join(parameter.choices) or parameter.range_text()
    return f"{parameter.name}={parameter.default}{unit}: {parameter.help} ({allowed})"
