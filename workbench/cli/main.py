"""The command line: the commands, their options, and every error as one line.

stdout carries data only; progress, warnings and errors go to stderr.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from .. import __version__, catalog
from ..contract import WorkloadError
from ..engine.exit_codes import CUT_SHORT, FAILED, USAGE
from ..planning.scenario import ScenarioError
from ..planning.usage import UsageError
from ..report.journal import JournalError
from ..text.output import let_go, say, say_bug
from ..text.sanitize import shown
from . import commands
from .ab import ab
from .compare import compare
from .config import config
from .export import export
from .fleet import fleet
from .history import resume, runs
from .launch import start
from .options import (
    Program,
    ReaderGone,
    anonymize_option,
    chosen_format,
    examples,
    format_options,
    json_option,
    keeps_samples,
    model_options,
    no_samples_option,
    own_options,
    questions,
    run_options,
    scenario_options,
)
from .schema import schema

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
SHORT = {  # of what the system is short, and what gives more of it (errno(3))
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "the whole machine has too many files open; close some",
    errno.EAGAIN: "raise the limit on processes (ulimit -u), or end some",
    errno.ENOMEM: "free memory, or raise the limit on it (ulimit -v)",
}
LONGEST = 2000  # characters of an error: the choices of an option fit, a huge argument does not
DEFAULT = click.core.ParameterSource.DEFAULT


@click.group(
    cls=Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "workbench                                  the table of scenarios, live",
        "workbench --json --quick | jq .summary     the same in 20 s, for a script",
        "workbench advise --torch package.module:build",
    ),
)
@scenario_options
@own_options
@run_options
@click.version_option(__version__, prog_name="workbench", message="%(prog)s %(version)s")
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
        raise UsageError(f"put {name} after the command: workbench {context.invoked_subcommand}")


# --------------------------------------------------------------------- runs


@cli.command(
    epilog=examples(
        "workbench advise",
        "workbench advise realtime branching --json",
        "workbench advise --model M.onnx",
        "workbench advise --torch package.model:build --batch 1,8..64",
        "workbench advise --torch model.pt2 --save-best best",
        "workbench advise --torch script.py::Net --python .venv/bin/python -- --epochs 1",
        "workbench advise --function package.module:work",
        "workbench advise --command 'python train.py --device {device}' --over device=cpu,cuda",
    )
)
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]...")
@scenario_options
@own_options
@run_options
def advise(scenarios: tuple[str, ...], **options: Any) -> None:
    """Recommend CPU or GPU for each scenario.

    With --model, recommend which variant of your own model to ship, INT8 included.  With --torch,
    --function or --command, recommend where and how your own code should run; a script's
    arguments follow --.
    """
    asked = questions(options)  # takes its options out
    start({**options, **asked}, scenarios=scenarios)


@cli.command(
    epilog=examples(
        "workbench model M.onnx",
        "workbench model M.onnx --inputs data.npz --save-best best.onnx",
        "workbench model M.onnx --max-error 0.01 --batch 1,8..64 --json",
    )
)
@click.argument("file", metavar="M.onnx")
@model_options
@run_options
@click.pass_context
def model(context: click.Context, /, file: str, **options: Any) -> None:
    """Recommend which variant of your own ONNX model to ship, and where.

    The same as workbench advise --model M.onnx.
    """
    context.invoke(advise, scenarios=(), model=file, **options)


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
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Every workload (default budget 900 s, 180 s with --quick).",
)
@click.option(
    "--largest-batch",
    is_flag=True,
    help="Find the largest batch that fits into memory, instead of measuring speed.",
)
@click.option("--force", is_flag=True, help="Proceed even if other processes use the GPU.")
@run_options
def run(workloads: tuple[str, ...], **options: Any) -> None:
    """Measure every way of running a workload, side by side.

    Several values of a size or batch make a curve: 64..4096 takes every doubling.
    """
    if not workloads and not options["every"]:
        raise UsageError(f"name a workload, or --all: {', '.join(catalog.files())}")
    start(options, workloads=workloads)


@cli.command("open", epilog=examples("workbench open last", "workbench open report.json --plain"))
@click.argument("run", metavar="RUN")
@format_options(whole=True)
@no_samples_option
@anonymize_option
@click.option("--where", is_flag=True, help="Show where the seconds of the run went, as text.")
def open_(run: str, anonymize: bool, where: bool, **options: bool) -> None:
    """Show an earlier run.

    RUN is a JSON document, a journal, the id of a run, or `last`.
    """
    export_as = chosen_format(options)
    samples = keeps_samples(options, export_as)
    commands.show_run(run, export_as, samples=samples, anonymize=anonymize, where=where)


cli.add_command(export)
cli.add_command(runs)
cli.add_command(resume)
cli.add_command(ab)
cli.add_command(compare)
cli.add_command(fleet)


# -------------------------------------------------------------- the machine


@cli.command(epilog=examples("workbench detect", "workbench detect --json | jq .machine.cpu"))
@click.option("--python", metavar="PATH", help="Interpreter whose packages are listed.")
@json_option
def detect(python: str | None, as_json: bool) -> None:
    """Show the hardware and software that a run would use."""
    commands.show_detected(python, as_json=as_json)


@cli.command(
    epilog=examples(
        "workbench doctor", "workbench doctor --json > report.json    anonymised, for a bug report"
    )
)
@click.option("--python", metavar="PATH", help="Interpreter whose packages are tried.")
@click.option(
    "--all-gpus", is_flag=True, help="Also run one product on every GPU, and show their links."
)
@json_option
def doctor(python: str | None, all_gpus: bool, as_json: bool) -> None:
    """Check hardware, driver and packages.

    Says what is wrong and how to fix it, and tries torch and ONNX Runtime on every device.  Exits 1
    if something cannot work.
    """
    sys.exit(commands.show_examination(python, all_gpus=all_gpus, as_json=as_json))


@cli.command(
    epilog=examples(
        "workbench watch", "workbench watch --json --every 5 --count 12 | jq .gpus[].power_w"
    )
)
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(0.5, 3600),
    default=1.0,
    metavar="SECONDS",
    help="Time between two snapshots; default 1, at least 0.5.",
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="Stop after N snapshots.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--plain", is_flag=True, help="Text, even in a terminal.")
def watch(every_s: float, count: int | None, as_json: bool, plain: bool) -> None:
    """Watch processor and GPUs.

    Shows utilisation, clocks, power, temperature and throttling.  Ends with Ctrl-C or q.
    """
    sys.exit(commands.watch_machine(every_s, count, as_json=as_json, plain=plain))


@cli.command(
    epilog=examples(
        "workbench ceilings",
        "workbench ceilings --again --budget 120",
        "workbench ceilings --json | jq '.ceilings.devices[].peak_ops_per_s'",
    )
)
@click.option("--again", is_flag=True, help="Measure again, even if this machine's are known.")
@click.option("--budget", "budget_s", type=float, metavar="SECONDS", help="Wall time; default 60.")
@click.option("--device", "devices", multiple=True, metavar="DEVICE", help="cpu, gpu, cuda:0 ...")
@click.option("--threads", type=int, metavar="N", help="CPU threads; default all usable cores.")
@click.option("--python", metavar="PATH", help="Interpreter of the workers.")
@json_option
def ceilings(**options: Any) -> None:
    """Show the limits of this machine.

    FLOP/s by precision, bandwidth and launch latency are measured once, and kept until hardware,
    driver, packages or environment change.  Every result is then reported as a fraction of its
    limit.
    """
    sys.exit(commands.show_ceilings(**options))


# ------------------------------------------------------------ the catalogue


@cli.command("list", epilog=examples("workbench list", "workbench list --json | jq '.workloads'"))
@click.option("--scenarios", "file", metavar="FILE.toml", help="Include your own scenarios.")
@click.option("--backends", is_flag=True, help="The libraries that can race, and how to get them.")
@json_option
def list_(file: str | None, backends: bool, as_json: bool) -> None:
    """Show the scenarios and workloads, and what each teaches."""
    if backends:
        commands.show_backends(as_json=as_json)
        return
    commands.show_catalogue(file, as_json=as_json)


cli.add_command(schema)
cli.add_command(config)


# ----------------------------------------------------------- the entry point


def main(arguments: list[str] | None = None) -> None:
    """Run the command, and turn every error into one line."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - until the end
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # as stderr has it
    try:
        cli.main(arguments, standalone_mode=False)
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except click.ClickException as error:
        fail(error.format_message(), USAGE)
    except (UsageError, ScenarioError, JournalError, WorkloadError) as error:
        hint = getattr(error, "hint", None)
        fail(f"{error} ({hint})" if hint else str(error), USAGE)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(CUT_SHORT)
    except ReaderGone:
        let_go(sys.stdout)  # else the interpreter would complain at exit
        sys.exit(CUT_SHORT)
    except OSError as error:
        refuse(error)
        internal(error)
    except Exception as error:
        internal(error)


def refuse(error: OSError) -> None:
    """End with what the system is short of, if `error` comes from that."""
    if error.errno in NO_ROOM:
        let_go(sys.stdout)
        fail(f"the output could not be written: {error.strerror}; write it elsewhere", FAILED)
    if error.errno in SHORT:
        fail(f"{error.strerror}: {SHORT[error.errno]}", FAILED)
    if error.errno == errno.ECANCELED:  # raised by `Control.writing`
        let_go(sys.stdout)
        sys.exit(CUT_SHORT)
    try:
        Path.cwd()
    except FileNotFoundError:
        fail("the current directory no longer exists: change to one that does", USAGE)


def internal(error: Exception) -> None:
    """End with a mistake of ours."""
    with suppress(BrokenPipeError):
        say_bug(error)
    sys.exit(FAILED)


def fail(message: str, code: int) -> None:
    """One line on stderr, and out.  Of several ranks with the same mistake the first reports it."""
    from ..worker.ranks import launch_of

    launch = launch_of(os.environ)
    if launch is None or launch.rank == 0 or code != USAGE:
        line = shown(" ".join(message.split()), LONGEST)
        with suppress(BrokenPipeError):
            say(f"workbench: {line}")
    sys.exit(code)
