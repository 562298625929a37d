"""From the options of the command line to a run: the checks before it, and its front end."""

from __future__ import annotations

import codecs
import gc
import os
import shlex
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..engine.exit_codes import CUT_SHORT
from ..export.formats import PLAIN
from ..planning.questions import ModelQuestion, OwnQuestion
from ..planning.request import NAME_PYTHON, Request, check_python
from ..planning.usage import UsageError, check_apart, new_folder, target, unknown
from ..text.output import say
from ..worker.code import COMMAND
from .options import chosen_format, keeps_samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from screens.state.event_source import EngineSource  # noqa: TID251

    from ..files.write import Target
    from ..records.events import RacePlanned
    from ..records.fleet import FleetDocument
    from ..records.machine import Links, Machine, Software
    from ..report.report import Report
    from ..report.run_files import OpenedRun

ALL_GPUS_S, EACH_GPU_S = 15.0, 8.0  # budget of `doctor --all-gpus`: starting CUDA takes most


def start(
    options: dict[str, Any], scenarios: tuple[str, ...] = (), workloads: tuple[str, ...] = ()
) -> None:
    """Check the request and run it with the front end that fits; exits the process."""
    from ..planning import scenarios as rows_of
    from ..planning.announcing import outline, planned
    from ..planning.rows import resolve

    export_as = chosen_format(options)
    is_live = export_as is None and in_terminal()
    if is_live:
        gc.disable()  # until the first frame, see `screens.terminal`
    named, control, verbose = (options.pop(name) for name in ("output", "control", "verbose"))
    samples = keeps_samples(options, export_as, named)
    if control:
        check_control()
    check_python(options["python"])
    cut = click.get_current_context().find_root().obj  # set by `workbench resume`
    if not (control or cut):  # else the TUI, or the resumed run, has done so
        with_settings(options)
    request = Request(scenarios=scenarios, workloads=workloads, resumes=cut, **options)
    known = rows_of.load_with(request.scenario_file)
    preview = outline(request, *known) if is_live and not cut else None
    rows = [] if preview else resolve(request, *known)
    request, output = with_outputs(take_part(request), named)
    if is_live:
        preview = preview or [planned(row, request, 0.0) for row in rows]
        sys.exit(show_live(request, preview, output, samples=samples))
    from .headless import run_headless

    code = run_headless(
        request,
        rows,
        export_as=export_as or PLAIN,
        output=output,
        samples=samples,
        take_control=control,
        verbose=verbose,
    )
    sys.exit(code)


def with_settings(options: dict[str, Any]) -> None:
    """Fill in the user's budget and prices if the command line has none."""
    from ..files.config import load

    settings, wrong = load()
    for line in wrong:
        say(f"workbench: {line}")
    others = ("quick", "thorough", "every", "all_scenarios")
    if options.get("budget_s") is None and not any(options.get(name) for name in others):
        options["budget_s"] = settings.get("budget")
    if "prices" in options and not (options["prices"] or options["price_file"]):
        options["prices"] = tuple(settings.get("prices", ()))


def with_outputs(request: Request, named: str | None) -> tuple[Request, Target | None]:
    """`request` with a resolved --save-best, and the opened file that --output has `named`.

    UsageError if a file cannot be written, or if two options name the same file.
    """
    if request.trace is not None:
        target("--trace", Path(request.trace))  # the engine opens it
    asked = request.question
    if asked is not None and asked.save_best is not None:  # resolved, as another process writes it
        path = Path(asked.save_best)
        if isinstance(asked, OwnQuestion):
            path = new_folder("--save-best", path)
        elif (best := target("--save-best", path)).is_stream:
            raise UsageError(f"--save-best: {path} is not a regular file: name a file")
        else:
            path = best.path
        asked = replace(asked, save_best=str(path))
        request = replace(request, question=asked)
    output = None if named is None else target("--output", Path(named), opened=True)
    best_file = asked.save_best if asked is not None else None
    outputs = {"--trace": request.trace, "--save-best": best_file, "--output": named}
    check_apart(outputs, dict(files_read(request)))
    return request, output


def files_read(request: Request) -> Iterator[tuple[str, str | None]]:
    """The options that name files to read, with the names."""
    yield from (("--scenarios", request.scenario_file), ("--prices", request.price_file))
    asked = request.question
    if isinstance(asked, ModelQuestion):
        yield from ((asked.option, asked.target), ("--inputs", asked.inputs))
    elif asked is not None and asked.kind != COMMAND:
        yield asked.option, asked.target.partition("::")[0]  # a script may name its module after ::


def take_part(request: Request) -> Request:
    """Under torchrun or srun: rank 0 goes on with one device; the others follow it and never return
    from here.  Only `run scaling` is allowed, since in other runs ranks would disturb each other.

    OSError if the current directory is gone, in which torch cannot be imported.
    """
    from ..worker.launcher import launch_of

    Path.cwd()
    launch = launch_of(os.environ)
    if launch is None:
        return request
    from .. import machine
    from ..machine.packages.software import PRECISION_VARIABLES
    from ..worker import ranks

    if request.workloads != ("scaling",):
        raise UsageError(
            f"{launch.launcher} started {launch.size} processes, but only `run scaling` uses"
            " several; start workbench alone, or unset RANK and WORLD_SIZE"
        )
    if missing := ranks.complete(os.environ):
        raise UsageError(f"RANK is set, but not {' and '.join(missing)}: start it with torchrun")
    if request.largest_batch:
        raise UsageError("--largest-batch needs workers of its own: start workbench alone")
    if len(request.devices) > 1:
        raise UsageError("--device: the ranks of a launcher use one kind of device at a time")
    if launch.rank > 0:
        try:
            ranks.follow(request.python, without=PRECISION_VARIABLES)
        except OSError as error:
            text = f"{request.python or sys.executable} could not be started: {error.strerror}"
            raise UsageError(f"--python: {text}; {NAME_PYTHON}") from None
    if not request.devices:
        found, _ = machine.detect(request.python)
        device = "cuda:0" if any(gpu.is_cuda for gpu in found.gpus) else "cpu"
        return replace(request, devices=(device,))
    return replace(request, devices=("cuda:0",)) if request.devices == ("gpu",) else request


def show_live(
    request: Request, planned: list[RacePlanned], output: Target | None, *, samples: bool
) -> int:
    """The TUI with an engine in another process, which a stalled terminal cannot disturb."""
    from screens.app import run_tui  # noqa: TID251 - this module alone opens the outer layer

    from ..report.candidate import Row

    finish = partial(_finish, output=output, samples=samples)
    return run_tui(_engine, request, preview=list(map(Row, planned)), finish=finish)


def _finish(
    last: Report,
    asked: Report | None,
    code: int,
    output: Target | None = None,
    *,
    samples: bool = True,
) -> int:
    """Print how to open or resume the `last` run, and write the run that the command line `asked`
    for."""
    from ..export.view.answers import rest_text
    from ..report.journal import is_kept
    from .headless import is_cut, save

    run = last.started.id if last.started is not None else ""
    if is_kept(run):
        how = "only its beginning is kept" if is_cut(last) else "kept"
        sys.stdout.write("; ".join(filter(None, [f"{how}: workbench open {run}", rest_text(last)])))
        sys.stdout.write("\n")
    return code if output is None or asked is None else save(output, asked, code, samples=samples)


def _engine(asked: Request | str) -> EngineSource:
    """The engine of a request or of a recorded command."""
    from screens.state.event_source import EngineSource  # noqa: TID251

    from ..process.children import command

    display = ("--jsonl", "--control")
    if isinstance(asked, Request) and asked.resumes is not None:
        options = ["resume", asked.resumes.started.id, *display]
    elif isinstance(asked, Request):
        options = asked.arguments(*display)
    else:
        try:
            _, *options = shlex.split(asked)
        except ValueError:  # an unbalanced quote, which the engine then refuses as a name
            options = [asked]
        end = options.index("--") if "--" in options else len(options)  # arguments of a script
        options[end:end] = display
    # Not bound to this process: its control pipe ends it, after it has written its journal.
    return EngineSource(command("workbench.__main__", *options, bound=False))


def _first_request() -> Request:
    """The initial request of the form if the command line asks for no run."""
    options: dict[str, Any] = {"budget_s": None, "prices": (), "price_file": None}
    with_settings(options)
    return Request(**options)


def show_replay(opened: OpenedRun, *, is_own: bool) -> int:
    """The TUI on an earlier run.

    Only the command of the user's own run can be run again, since documents may come from others.
    """
    gc.disable()  # until the first frame, see `screens.terminal`
    from screens.app import run_tui  # noqa: TID251
    from screens.state.session import Session  # noqa: TID251

    kept = Session.of(opened)
    return run_tui(_engine, _first_request(), kept=kept, finish=_finish, starts=is_own)


def show_watch(found: Machine, software: Software, *, every_s: float) -> int:
    """The Hardware screen with live readings of this machine; a run can be started from it."""
    from screens.app import run_tui  # noqa: TID251
    from screens.state.event_source import WatchSource  # noqa: TID251

    from ..engine import ceiling_store
    from ..machine.snapshots import snapshots
    from ..records import events as ev

    known: list[ev.AnyEvent] = [ev.HardwareDetected(at_s=0.0, machine=found, software=software)]
    if ceilings := ceiling_store.load(ceiling_store.fingerprint(found, software)):
        known.append(ev.CeilingsKnown(at_s=0.0, ceilings=ceilings))
    source = WatchSource(known, lambda sleep: snapshots(found, every_s=every_s, sleep=sleep))
    return run_tui(_engine, _first_request(), watched=source, finish=_finish)


def check_theme(name: str) -> None:
    """UsageError if the screens have no such theme."""
    from screens.theme import NAMES  # noqa: TID251

    if name not in NAMES:
        raise unknown("theme", name, NAMES)


def show_fleet(read: Callable[[], FleetDocument], found: FleetDocument) -> FleetDocument:
    """The screen of a fleet; returns the last document that it showed."""
    from screens.fleet import FleetApp  # noqa: TID251

    app = FleetApp(read, found)
    if code := app.show():
        sys.exit(code)
    return app.found


def in_terminal() -> bool:
    """Whether a TUI can be shown, which reads stdin and draws on stderr."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    if os.environ.get("TERM") == "dumb" or not all(stream.isatty() for stream in streams):
        return False
    encoding = codecs.lookup(sys.stdout.encoding).name
    if encoding != "utf-8":
        say(f"the screens need a UTF-8 terminal, not {encoding}: set LC_ALL=C.UTF-8")
    return encoding == "utf-8"


def check_control() -> None:
    """Refuse a stdin that cannot be waited on, such as a regular file (EPERM in epoll_ctl(2))."""
    import stat

    mode = os.fstat(sys.stdin.fileno()).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or sys.stdin.isatty()):
        raise UsageError("--control reads lines from a pipe, but stdin is not one: pipe them in")


def all_gpus_report(found: Machine, python: str | None) -> tuple[Report, Links]:
    """A report of the same product on every GPU in turns, and the links between the GPUs."""
    from ..machine.nvidia.probe_client import gpu_links
    from ..planning.rows import resolve
    from .headless import run_quietly

    devices = tuple(found.by_device)
    if not devices:
        raise UsageError("--all-gpus: no GPU here can be used; see workbench detect")
    request = Request(
        workloads=("matmul",),
        devices=devices,
        precisions=("fp16",),
        budget_s=ALL_GPUS_S + EACH_GPU_S * len(devices),
        python=python,
    )
    report, code = run_quietly(take_part(request), resolve(request, {}))
    if code == CUT_SHORT:
        sys.exit(code)  # else GPUs without a result would count as faulty
    return report, gpu_links()
