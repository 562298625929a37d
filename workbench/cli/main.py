"""The command line: options into a request, a request into a run, a run into output.

stdout carries data only; progress, warnings and errors go to stderr.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import click
import msgspec

from .. import __version__, catalog
from ..contract import WorkloadError
from ..engine.exit_codes import CUT_SHORT, FAILED, USAGE
from ..planning.request import Request
from ..planning.scenario import ScenarioError
from ..planning.usage import UsageError
from ..records.events import encode
from ..report.journal import JournalError
from ..text.output import let_go, say
from .launch import (
    all_gpus_report,
    check_python,
    in_terminal,
    show_replay,
    show_watch,
    start,
    take_part,
)
from .options import (
    examples,
    json_option,
    model_options,
    model_question,
    run_options,
    scenario_options,
)

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
DEFAULT = click.core.ParameterSource.DEFAULT


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "workbench                      the table of scenarios, live",
        "workbench --json --quick       the same in 20 s, as JSON",
        "workbench advise realtime      one row",
        "workbench run matmul --set n=2048 --precision fp32",
        "workbench open last            look at an earlier run",
    ),
)
@scenario_options
@model_options
@run_options
@click.version_option(__version__, prog_name="workbench")
@click.pass_context
def cli(context: click.Context, /, **options: Any) -> None:
    """On this machine, for this job: CPU or GPU - and how sure are we?

    Measures candidates live and recommends one per scenario, as `workbench advise` without names.
    In a terminal it opens the workbench; elsewhere it writes text, or JSON on request.
    """
    if context.invoked_subcommand is None:
        context.invoke(advise, scenarios=(), **options)
    elif given := [n for n in options if context.get_parameter_source(n) is not DEFAULT]:
        name = next(p.opts[0] for p in context.command.params if p.name == given[0])
        raise UsageError(f"put {name} behind the command: workbench {context.invoked_subcommand}")


@cli.command(
    epilog=examples(
        "workbench advise",
        "workbench advise realtime branching --json",
        "workbench advise --model M.onnx",
        "workbench advise --model M.onnx --inputs data.npz --save-best best.onnx",
    )
)
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]...")
@scenario_options
@model_options
@run_options
def advise(scenarios: tuple[str, ...], **options: Any) -> None:
    """Race the candidates of scenarios and recommend CPU or GPU for each; or, with --model, the
    forms of a model of your own, INT8 among them, and say which to ship."""
    question = model_question(options)
    start({**options, "model": question}, scenarios=scenarios)


@cli.command(
    epilog=examples(
        "workbench run matmul --set n=2048",
        "workbench run digits --precision fp32 --json",
        "workbench run train_cnn --batch 8..128 --device cpu",
        "workbench run matmul --set n=64..4096 --precision fp32,bf16",
        "workbench run train_cnn --largest-batch --device gpu",
        "workbench run --all --quick",
    )
)
@click.argument("workloads", nargs=-1, metavar="WORKLOAD...")
@click.option("--all", "every", is_flag=True, help="Every workload; 900 s, 180 with --quick.")
@click.option(
    "--largest-batch",
    is_flag=True,
    help="Instead of racing, find the largest batch that fits into memory.",
)
@click.option("--force", is_flag=True, help="Do so on a GPU that others are using, too.")
@run_options
def run(workloads: tuple[str, ...], **options: Any) -> None:
    """Measure every way of doing a workload, side by side.

    Several values of a size or batch make a curve, as 64..4096 for each doubling.
    """
    if not workloads and not options["every"]:
        raise UsageError(f"name a workload, or --all: {', '.join(catalog.files())}")
    start(options, workloads=workloads)


@cli.command(epilog=examples("workbench detect", "workbench detect --json | jq .machine.cpu"))
@click.option("--python", metavar="PATH", help="Interpreter whose packages are looked up.")
@json_option
def detect(python: str | None, as_json: bool) -> None:
    """Show the hardware and software that a run would use."""
    from .. import machine

    check_python(python)
    found, software = machine.detect(python)
    warnings = machine.hardware_warnings(found, software)
    if as_json:
        from ..export.json import dump
        from ..records.document import SCHEMA_VERSION, Tool

        head = {"schema_version": SCHEMA_VERSION, "tool": Tool("workbench", __version__, "detect")}
        click.echo(dump({**head, "machine": found, "software": software, "warnings": warnings}))
        return
    from ..export.text import machine_text
    from ..export.view.events import warning_text

    click.echo(machine_text(found, software))
    for warning in warnings:
        click.echo(f"warning: {warning_text(warning)}", err=True)


@cli.command(
    epilog=examples(
        "workbench doctor",
        "workbench doctor --json > report.json    names nobody: made for a bug report",
    )
)
@click.option("--python", metavar="PATH", help="Interpreter whose packages are tried.")
@click.option(
    "--all-gpus", is_flag=True, help="Also race one product on every GPU, and show their links."
)
@json_option
def doctor(python: str | None, all_gpus: bool, as_json: bool) -> None:
    """Check hardware, driver and packages; say what is wrong and what helps.

    Tries torch and ONNX Runtime on every device.  Exits 1 if something cannot work.
    """
    from .. import machine
    from ..advisor import doctor as doctors
    from ..engine import ceilings as ceilings_of
    from ..export.doctor import doctor_text, private_words
    from ..export.json import dump
    from ..machine.packages.trials import try_packages
    from ..records.document import SCHEMA_VERSION, Tool

    check_python(python)
    found, software = machine.detect(python)
    silent = "python" in software.unavailable
    installed = [n for n in ("torch", "onnxruntime") if doctors.is_installed(n, software)]
    trials = try_packages([] if silent else installed, python)
    known = ceilings_of.load(ceilings_of.fingerprint(found, software))
    examined = doctors.examine(found, software, trials, known)
    if all_gpus:
        report, links = all_gpus_report(found, python)
        examined = examined.with_all_gpus(report, links)
    if as_json:
        head = {"schema_version": SCHEMA_VERSION, "tool": Tool("workbench", __version__, "doctor")}
        parts = {**head, **msgspec.structs.asdict(examined), "trials": trials}
        told = dump({**parts, "machine": doctors.nameless(found), "software": software})
        click.echo(doctors.scrub(told, private=private_words(found)))
    else:
        click.echo(doctor_text(examined))
    sys.exit(FAILED if examined.failed else 0)


@cli.command(
    epilog=examples(
        "workbench watch",
        "workbench watch --json --every 5 --count 12 | jq .gpus[].power_w",
    )
)
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(0.5, 3600),
    default=1.0,
    metavar="SECONDS",
    help="Between two looks; default 1, at least 0.5.",
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="Stop after N looks.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--plain", is_flag=True, help="Text, even in a terminal.")
def watch(every_s: float, count: int | None, as_json: bool, plain: bool) -> None:
    """Watch processor and GPUs: use, clocks, power, temperature, what holds them back.

    Ends with Ctrl-C or q.
    """
    from .. import machine
    from ..export.watch import header, line
    from ..machine.snapshots import looks

    found, _ = machine.detect()
    if not as_json and not plain and count is None and in_terminal():
        sys.exit(show_watch(found, every_s=every_s))
    with suppress(KeyboardInterrupt):  # the way to end it
        if not as_json:
            click.echo("\n".join(header(found)))
        for look in islice(looks(found, every_s=every_s), count):
            text = encode(look).decode() if as_json else line(look)
            click.echo(text)


@cli.command(
    epilog=examples(
        "workbench ceilings",
        "workbench ceilings --again --budget 120",
        "workbench ceilings --json | jq '.ceilings.devices[].peak_ops_per_s'",
    )
)
@click.option("--again", is_flag=True, help="Measure, even if there are figures of this machine.")
@click.option("--budget", "budget_s", type=float, metavar="SECONDS", help="Wall time; default 60.")
@click.option("--device", "devices", multiple=True, metavar="DEVICE", help="cpu, gpu, cuda:0 ...")
@click.option("--threads", type=int, metavar="N", help="CPU threads; default all usable cores.")
@click.option("--python", metavar="PATH", help="Interpreter of the workers.")
@json_option
def ceilings(again: bool, as_json: bool, **options: Any) -> None:
    """Show what this machine can reach: FLOP/s by precision, bandwidth, launch latency.

    Measured once and kept until hardware, driver, packages or environment change; every result
    is then told as a fraction of it.
    """
    from .. import machine
    from ..engine import ceilings as kept
    from ..export.json import dump
    from ..export.view.ceilings import ceilings_text
    from ..machine.datasheets import load as datasheets
    from ..planning.request import check
    from ..records.document import SCHEMA_VERSION, Tool
    from .headless import run_quietly

    check_python(options["python"])
    threads = options.pop("threads")
    request = Request(ceilings=True, threads=() if threads is None else (threads,), **options)
    request = take_part(request)
    check(request)
    found, software = machine.detect(options["python"])
    known = None if again or options["devices"] else kept.load(kept.fingerprint(found, software))
    code = 0
    if known is None or not known.complete:
        report, code = run_quietly(request)
        known, found = report.ceilings, report.machine or found
    if as_json:
        head = {
            "schema_version": SCHEMA_VERSION,
            "tool": Tool("workbench", __version__, "ceilings"),
        }
        names = [device.name for device in known.devices] if known else []
        sheets = {name: sheet for name, sheet in datasheets().items() if name in names}
        parts = {**head, "machine": found, "software": software, "ceilings": known}
        click.echo(dump({**parts, "datasheets": sheets}))
    elif known is not None:
        click.echo(ceilings_text(known))
    sys.exit(code)


@cli.command("list", epilog=examples("workbench list", "workbench list --json | jq '.workloads'"))
@click.option("--scenarios", "file", metavar="FILE.toml", help="Those of your own file, too.")
@json_option
def list_(file: str | None, as_json: bool) -> None:
    """Show the scenarios and workloads, and what each teaches."""
    from ..export.json import dump
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
    click.echo(dump({"scenarios": list(rows.values()), "workloads": described, "broken": problems}))


@cli.command("open", epilog=examples("workbench open last", "workbench open report.json --plain"))
@click.argument("run", metavar="RUN")
@json_option
@click.option("--plain", is_flag=True, help="Text, even in a terminal.")
def open_(run: str, as_json: bool, plain: bool) -> None:
    """Show an earlier run: a JSON document, a journal, the id of a run, or `last`."""
    from ..export.json import dump
    from ..export.text import run_text
    from ..report.replay import open_run
    from ..report.report import Report

    events = open_run(run)
    if not as_json and not plain and in_terminal():
        sys.exit(show_replay(events))
    report = Report.of(events)
    click.echo(dump(report.document()) if as_json else run_text(report))


def main() -> None:
    """The console script: runs the command, turns every error into one line."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - until the end
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except click.ClickException as error:
        fail(error.format_message(), USAGE)
    except (UsageError, ScenarioError, JournalError, WorkloadError) as error:
        hint = getattr(error, "hint", None)
        fail(f"{error} ({hint})" if hint else str(error), USAGE)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(CUT_SHORT)
    except BrokenPipeError:
        # Whoever read us has left; keep the interpreter from complaining about it at exit.
        let_go(sys.stdout)
        sys.exit(FAILED)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            let_go(sys.stdout)
            fail(f"the output could not be written: {error.strerror}; write it elsewhere", FAILED)
        if os.environ.get("WORKBENCH_DEBUG"):
            raise
        text = f"internal error: {type(error).__name__}: {error} (WORKBENCH_DEBUG=1 tells more)"
        fail(text, FAILED)


def fail(message: str, code: int) -> None:
    """One line on stderr, and out.  Of several ranks with the same mistake the first tells it."""
    from ..worker.ranks import launch_of

    launch = launch_of(os.environ)
    if launch is None or launch.rank == 0 or code != USAGE:
        line = " ".join(message.split())
        with suppress(BrokenPipeError):
            say(f"workbench: {line}")
    sys.exit(code)
