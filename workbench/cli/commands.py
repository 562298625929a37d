"""The commands that start no run or only ceilings: for the machine, the catalogue, earlier runs.

Imports stay inside functions, so that a command loads only what it needs.
"""

import sys
from itertools import islice
from pathlib import Path
from typing import Any

import click

from .. import machine
from ..engine.exit_codes import CUT_SHORT, FAILED, OK
from ..export.formats import PLAIN, whole
from ..planning.request import Request, check, check_python
from ..planning.usage import UsageError
from ..text.output import put, say, terminal_width
from ..text.sanitize import shown
from .launch import all_gpus_report, check_theme, in_terminal, show_replay, show_watch, take_part
from .options import (
    Seconds,
    anonymize_option,
    chosen_format,
    flag,
    format_options,
    json_option,
    keeps_samples,
    names_option,
    no_samples_option,
    seconds,
    value,
)
from .program import command, echo_json, head


@command("workbench open", "workbench open report.json --plain", name="open")
@click.argument("run", metavar="[RUN]", default="last")
@format_options(whole=True)
@no_samples_option
@anonymize_option
@flag("--where", "Show as text how the run spent its time.")
def open_(run: str, anonymize: bool, where: bool, **options: bool) -> None:
    """Show an earlier run.

    RUN is a JSON document, a journal, the id of a run, or `last`, the default.
    """
    from ..report.run_files import OpenedRun, open_run

    export_as = chosen_format(options)
    samples = keeps_samples(options, export_as)
    opened = open_run(run)
    if anonymize:
        from ..report.anonymous import anonymised

        opened = OpenedRun(anonymised(opened.report), [])
    if where and export_as not in (None, PLAIN):
        raise UsageError("--where is text: leave out the other format")
    if where:
        from ..export.text import where_lines

        click.echo("\n".join(where_lines(opened.report)))
        return
    if export_as is None and in_terminal():
        sys.exit(show_replay(opened, is_own=not anonymize and not Path(run).exists()))
    put(whole(export_as or PLAIN, opened.report, samples=samples))


@command("workbench detect", "workbench detect --json | jq .machine.cpu")
@value("--python PATH", "Interpreter whose packages are listed.")
@json_option
def detect(python: str | None, as_json: bool) -> None:
    """Show the hardware and software that a run would use."""
    from ..machine.warnings import hardware_warnings
    from ..records.inspection import Detected

    check_python(python)
    found, software = machine.detect(python)
    warnings = hardware_warnings(found, software)
    if as_json:
        echo_json(Detected(**head("detect"), machine=found, software=software, warnings=warnings))
        return
    from ..export.view.machine import machine_text

    click.echo(machine_text(found, software, terminal_width()))
    for warning in warnings:
        click.echo(f"warning: {warning.about(found.name_of(warning.subject))}", err=True)


@command(
    "workbench doctor", "workbench doctor --json > report.json    anonymised, for a bug report"
)
@value("--python PATH", "Interpreter whose packages are tried.")
@flag("--all-gpus", "Also run one product on every GPU, and show their links.")
@json_option
def doctor(python: str | None, all_gpus: bool, as_json: bool) -> None:
    """Check hardware, driver and packages.

    Says what is wrong and how to fix it, and tries the libraries on every device.  Exits 1
    if something cannot work.
    """
    from ..advisor.doctor import examine
    from ..engine import ceiling_store
    from ..export.doctor import doctor_text
    from ..machine.packages.software import package_of, try_packages
    from ..machine.packages.stack_trial import TRIALS
    from ..report.anonymous import Pseudonyms

    check_python(python)
    Path.cwd()  # fails early if the folder is gone, in which torch cannot be imported
    found, software = machine.detect(python)
    compared = all_gpus_report(found, python) if all_gpus else None
    installed = [name for name in TRIALS if package_of(name, software)]
    trials = try_packages(installed, python, at_once=not found.exclusive)
    known = ceiling_store.load(ceiling_store.fingerprint(found, software))
    examined = examine(head("doctor"), found, software, trials, known, compared)
    if as_json:
        echo_json(Pseudonyms(found)(examined))
    else:
        click.echo(doctor_text(examined, terminal_width()))
    sys.exit(FAILED if examined.failed else OK)


@command("workbench watch", "workbench watch --json --every 5 --count 12 | jq '.gpus[].power_w'")
@value(
    "--every SECONDS",
    "Time between two snapshots; default 1, at least 0.5.",
    "every_s",
    type=Seconds(0.5, 3600),
    default=1.0,
)
@value("--count N", "Stop after N snapshots.", type=click.IntRange(1, 10**9))
@flag("--json", "One JSON object a line.", "as_json")
@flag("--plain", "Text, even in a terminal.")
def watch(every_s: float, count: int | None, as_json: bool, plain: bool) -> None:
    """Watch processor and GPUs.

    Shows utilisation, clocks, power, temperature and throttling.  Ends with Ctrl-C or q.
    """
    from ..export.watch import header, line
    from ..machine.snapshots import snapshots
    from ..records.events import encode

    found, software = machine.detect()
    if not as_json and not plain and count is None and in_terminal():
        sys.exit(show_watch(found, software, every_s=every_s))
    try:
        if not as_json:
            click.echo("\n".join(header(found)))
        for snapshot in islice(snapshots(found, every_s=every_s), count):
            click.echo(encode(snapshot) if as_json else line(snapshot))
    except KeyboardInterrupt:  # the usual end, unless --count asked for more snapshots
        sys.exit(OK if count is None else CUT_SHORT)


@command(
    "workbench ceilings",
    "workbench ceilings --again --budget 120",
    "workbench ceilings --json | jq '.ceilings.devices[].peak_ops_per_s'",
)
@flag("--again", "Measure again, even if this machine's are known.")
@value("--budget SECONDS", "Wall time; default 60.", "budget_s", type=Seconds(1))
@names_option("--device DEVICE", "cpu, gpu, cuda:0 ...", "devices")
@value("--threads N", "CPU threads; default all usable cores.", type=int)
@value("--python PATH", "Interpreter of the workers.")
@json_option
def ceilings(
    *, again: bool, threads: int | None, as_json: bool, python: str | None, **options: Any
) -> None:
    """Show the ceilings of this machine.

    FLOP/s by precision, bandwidth and launch latency are measured once, and kept until hardware,
    driver, packages or environment change.  A faster result raises them.  With --again, a slower
    one also replaces them, unless a warning says that it was disturbed.  Every result is then
    reported as a fraction of its ceiling.
    """
    from ..engine import ceiling_store
    from ..export.view.ceilings import ceilings_text
    from ..export.view.events import ALARMING
    from ..machine.datasheets import load as datasheets
    from ..records.inspection import CeilingsReport
    from .headless import run_quietly, say_why

    check_python(python)
    counts = () if threads is None else (threads,)
    request = take_part(
        Request(ceilings=True, again=again, threads=counts, python=python, **options)
    )
    check(request)
    found, software = machine.detect(python)
    stored = not (again or request.devices or counts)
    known = ceiling_store.load(ceiling_store.fingerprint(found, software)) if stored else None
    code, warnings = OK, []
    if known is None or not ceiling_store.is_whole(known, found):
        report, code = run_quietly(request)
        known, found, warnings = report.ceilings, report.machine or found, report.warnings
        say_why(report, code)
        for warning in warnings:
            if warning.code not in ALARMING:  # the log has those
                say(f"warning: {warning.about(found.name_of(warning.subject))}")
    if as_json:
        names = [device.name for device in known.devices] if known else []
        sheets = {name: sheet for name, sheet in datasheets().items() if name in names}
        parts = {**head("ceilings"), "machine": found, "software": software, "ceilings": known}
        echo_json(CeilingsReport(**parts, datasheets=sheets, warnings=warnings))
    elif known is not None:
        click.echo(ceilings_text(known))
    sys.exit(code)


@command("workbench list", "workbench list --json | jq '.workloads'", name="list")
@value("--scenarios FILE.toml", "Include your own scenarios.", "file")
@flag("--backends", "The libraries that can race, and how to get them.")
@json_option
def list_(file: str | None, backends: bool, as_json: bool) -> None:
    """Show the scenarios and workloads, and what each teaches."""
    from ..export import catalogue

    found = catalogue.libraries(head("list")) if backends else catalogue.jobs(head("list"), file)
    if as_json:
        echo_json(found)
    else:
        text = catalogue.backends_text if backends else catalogue.catalogue_text
        click.echo(text(found, terminal_width()))


PARTS = (
    "document", "events", "ab", "ceilings", "compare", "detect", "doctor", "fleet", "fleet-plan",
    "list", "runs", "watch",
)  # fmt: skip


@command("workbench schema > document.schema.json", "workbench schema events")
@click.argument("part", type=click.Choice(PARTS), default="document")
def schema(part: str) -> None:
    """Print the JSON Schema of a command's output.

    Without a name it is that of a run's document; `events` is that of each line of --jsonl and of a
    journal, `watch` that of each line of `watch --json`.
    """
    from ..export.schema import schema_of

    echo_json(schema_of(part))


@command("workbench config set prices cpu=0.10,gpu=2.99")
@click.argument("change", required=False, type=click.Choice(("set", "unset")))
@click.argument("key", required=False, metavar="[KEY]")
@click.argument("value", required=False, metavar="[VALUE]", type=click.UNPROCESSED)
def config(change: str | None, key: str | None, value: str | None) -> None:
    """Show your settings and their file, or change one."""
    from ..files.config import KEYS, ConfigError, assign, load, path

    if change is not None:
        if key is None or (value is not None) != (change == "set"):
            raise UsageError("use `config set KEY VALUE` or `config unset KEY`")
        if key == "theme" and value is not None:
            check_theme(value)
        unit = seconds(value or "") if key == "budget" else None
        try:
            assign(key, value if unit is None else str(unit))
        except ConfigError as error:
            if isinstance(error.__context__, OSError):  # the machine's fault, not the user's
                say(f"workbench: {error}")
                sys.exit(FAILED)
            raise UsageError(str(error)) from None
        return
    values, wrong = load()
    click.echo(shown(str(path()), 4000))
    for name, meaning in KEYS.items():
        found = values.get(name, "-")
        text = ",".join(found) if isinstance(found, list) else str(found)
        click.echo(f"{name:8}{shown(text, 60):24}  {meaning}")
    for line in wrong:
        say(f"workbench: {line}")
