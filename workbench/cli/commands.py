"""The commands that show something other than a new run: the machine, the catalogue, old runs.

Imports stay inside functions, so that a command loads no more than it needs.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import click
import msgspec

from .. import __version__, catalog
from ..engine.exit_codes import FAILED, OK
from ..planning.request import Request
from .launch import all_gpus_report, check_python, in_terminal, show_replay, show_watch, take_part


def head(command: str) -> dict[str, Any]:
    """The first members of every smaller document."""
    from ..records.document import SCHEMA_VERSION, Tool

    return {"schema_version": SCHEMA_VERSION, "tool": Tool("workbench", __version__, command)}


def echo_json(value: Any) -> None:
    from ..export.json import dump

    click.echo(dump(value).encode())  # UTF-8 (RFC 8259), whatever the locale


def show_detected(python: str | None, *, as_json: bool) -> None:
    from .. import machine
    from ..machine.warnings import hardware_warnings

    check_python(python)
    found, software = machine.detect(python)
    warnings = hardware_warnings(found, software)
    if as_json:
        parts = {"machine": found, "software": software, "warnings": warnings}
        echo_json({**head("detect"), **parts})
        return
    from ..export.text import machine_text
    from ..export.view.events import warning_text
    from ..text.output import terminal_width

    click.echo(machine_text(found, software, terminal_width()))
    for warning in warnings:
        click.echo(f"warning: {warning_text(warning)}", err=True)


def show_examination(python: str | None, *, all_gpus: bool, as_json: bool) -> int:
    """Returns the exit code: a failure if something cannot work."""
    from .. import machine
    from ..advisor import doctor
    from ..engine import ceiling_store
    from ..export.doctor import doctor_text
    from ..machine.packages.stack_trial import TRIALS
    from ..machine.packages.trials import try_packages
    from ..report.anonymous import Pseudonyms

    check_python(python)
    found, software = machine.detect(python)
    silent = "python" in software.unavailable
    installed = [name for name in TRIALS if doctor.is_installed(name, software)]
    trials = try_packages([] if silent else installed, python)
    known = ceiling_store.load(ceiling_store.fingerprint(found, software))
    examined = doctor.examine(found, software, trials, known)
    if all_gpus:
        report, links = all_gpus_report(found, python)
        examined = examined.with_all_gpus(report, links)
    if as_json:
        parts = {**head("doctor"), **msgspec.structs.asdict(examined), "trials": trials}
        echo_json(Pseudonyms(found)({**parts, "machine": found, "software": software}))
    else:
        click.echo(doctor_text(examined))
    return FAILED if examined.failed else OK


def watch_machine(every_s: float, count: int | None, *, as_json: bool, plain: bool) -> int:
    from .. import machine
    from ..export.watch import header, line
    from ..machine.snapshots import snapshots
    from ..records.events import encode

    found, _ = machine.detect()
    if not as_json and not plain and count is None and in_terminal():
        return show_watch(found, every_s=every_s)
    with suppress(KeyboardInterrupt):  # the usual end
        if not as_json:
            click.echo("\n".join(header(found)))
        for snapshot in islice(snapshots(found, every_s=every_s), count):
            click.echo(encode(snapshot) if as_json else line(snapshot))
    return OK


def show_ceilings(
    *, again: bool, threads: int | None, as_json: bool, python: str | None, **options: Any
) -> int:
    """Measures them first where they are unknown; returns the exit code of that run."""
    from .. import machine
    from ..engine import ceiling_store
    from ..export.view.ceilings import ceilings_text
    from ..machine.datasheets import load as datasheets
    from ..planning.request import check
    from .headless import run_quietly

    check_python(python)
    counts = () if threads is None else (threads,)
    request = take_part(Request(ceilings=True, threads=counts, python=python, **options))
    check(request)
    found, software = machine.detect(python)
    stored = not again and not request.devices
    known = ceiling_store.load(ceiling_store.fingerprint(found, software)) if stored else None
    code = OK
    if known is None or not known.complete:
        report, code = run_quietly(request)
        known, found = report.ceilings, report.machine or found
    if as_json:
        names = [device.name for device in known.devices] if known else []
        sheets = {name: sheet for name, sheet in datasheets().items() if name in names}
        parts = {"machine": found, "software": software, "ceilings": known, "datasheets": sheets}
        echo_json({**head("ceilings"), **parts})
    elif known is not None:
        click.echo(ceilings_text(known))
    return code


def show_catalogue(file: str | None, *, as_json: bool) -> None:
    from ..export.text import catalogue_text
    from ..planning import scenarios

    rows, _ = scenarios.load_with(file)
    usable, broken = catalog.load_all()
    if not as_json:
        click.echo(catalogue_text(usable, broken, rows))
        return
    described = [
        {
            "name": workload.name,
            "title": workload.title,
            "teaches": workload.teaches,
            "batch": workload.default_batch,
            "parameters": workload.parameters,
            "variants": workload.variants,
        }
        for workload in usable.values()
    ]
    problems = {name: str(error) for name, error in broken.items()}
    echo_json({"scenarios": list(rows.values()), "workloads": described, "broken": problems})


def show_backends(*, as_json: bool) -> None:
    from ..export.view.table import plain_table
    from ..machine.packages.stack_query import query

    installed = query()["packages"]
    rows = []
    for name in catalog.backends():
        backend = catalog.backend(name)
        found = (installed.get(package) for package in backend.packages or (name,))
        version = next((package["version"] for package in found if package), None)
        rows.append({"name": name, "version": version, "install": backend.install})
    if as_json:
        echo_json({"backends": rows})
        return
    cells = [[str(r["name"]), r["version"] or "not installed", str(r["install"])] for r in rows]
    for line in plain_table(("Backend", "Version", "Installed by"), cells):
        click.echo(line.plain.rstrip())


def show_run(
    name: str, export_as: str | None, *, samples: bool, anonymize: bool, where: bool
) -> None:
    """An earlier run in one of the export formats; without one on the screens, or as text."""
    from ..export.formats import FORMATS, PLAIN, document
    from ..export.view.where import where_lines
    from ..report.anonymous import anonymised
    from ..report.run_files import OpenedRun, open_run
    from ..text.output import put

    opened = open_run(name)
    if anonymize:
        opened = OpenedRun(anonymised(opened.report), [])
    if where and export_as in (None, PLAIN):
        click.echo("\n".join(where_lines(opened.report)))
        return
    if export_as is None and in_terminal():
        sys.exit(show_replay(opened, is_own=not anonymize and not Path(name).exists()))
    whole = FORMATS[export_as or PLAIN].whole
    if not samples:
        put(document(opened.report, samples=False))
    elif whole is not None:
        put(whole(opened.report))
