"""`workbench fleet`: one question to many machines."""

import sys
from pathlib import Path
from time import time
from typing import Any

import click

from ..engine.exit_codes import CUT_SHORT, FAILED, OK
from ..export.formats import FORMATS
from ..files.write import replace
from ..planning.request import Request
from ..planning.usage import UsageError
from ..records.errors import JournalError
from ..records.fleet import COLLECTED, FleetDocument, FleetPlan, PlanDocument
from ..text.output import put, say
from ..text.sanitize import shown
from .options import (
    Seconds,
    adapt,
    all_of,
    flag,
    json_option,
    own_options,
    price_options,
    run_options,
    scenario_options,
    seconds,
    value,
)
from .program import Group, command, echo_json, head
from .questions import question

# Options of a run that each node has of its own, or that write a file there.
LEFT_OUT = {"python", "trace", "output", "control", "save_best", "no_samples", "what_if", "verbose"}
LEFT_OUT |= {f"as_{name}" for name in FORMATS}
INTERPRETER = "Interpreter on the nodes; default the launcher's."
EVERY = "Seconds between checks of the jobs; default 15."
FOLDER = click.Path(exists=True, file_okay=False)
LATEST = "Cancel jobs that have not ended after this time, such as 30m; default 1h."


def _time(_: click.Context, option: click.Parameter, text: str) -> float:
    if not (found := seconds(text)):
        raise UsageError(f"{option.opts[0]} takes a time such as 90s, 30m or 2h, not {text!r}")
    return found


PER_TYPE = value(
    "--per-type N", "Nodes of each type; default 2.", type=click.IntRange(1, 1000), default=2
)
of_a_run = all_of(
    click.argument("scenarios", nargs=-1, metavar="[SCENARIO]..."),
    scenario_options,
    own_options,
    run_options,
)
of_a_fleet = all_of(
    PER_TYPE,
    value("--partition NAME", "Slurm partition.  Repeatable.", "partitions", multiple=True),
    value("--hosts A,B", "Machines to reach by ssh, without Slurm."),
    value("--hosts-file FILE.toml", 'A file with hosts = ["A", "B"].'),
    flag("--shared", "Let other jobs run on the nodes meanwhile."),
    value("--deadline TIME", LATEST, "deadline_s", callback=_time, default="1h"),
    value("--python PATH", INTERPRETER, "node_python", default=sys.executable),
    value("--wheels DIR", "Wheels that each node installs for its run.", type=FOLDER),
    value("--scaling TYPE", "Also train over two nodes of this type."),
    of_a_run,
)


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def fleet(context: click.Context) -> None:
    """Ask many machines the same question, and choose among them."""
    if context.invoked_subcommand is None:
        raise UsageError(f"name a command: {', '.join(sorted(fleet.commands))}")


def read(place: Path, *, alone: bool = False) -> FleetDocument:
    """A collected document, or that of a folder, without its fleets if `alone`; else UsageError."""
    from ..advisor.fleet import fleet_document
    from ..advisor.recordings import why
    from ..fleet.reader import decoded, read_folder
    from ..report.journal import check_schema
    from ..report.plausible import absurdity

    if not place.is_dir():
        try:
            document = decoded(place, FleetDocument)
            check_schema(place, document.schema_version)
            if absurd := absurdity(document):
                raise JournalError(absurd)
            return document
        except Exception as error:
            text = f"{place} is not the document of a fleet: {why(error)}"
            raise UsageError(f"{text}; for other documents name their folder") from None
    found = read_folder(place, time(), alone=alone)
    if not found.nodes and not found.warnings:
        raise UsageError(f"{place} holds no fleet.json and no document: name a fleet's folder")
    return fleet_document(head("fleet"), found)


@command("workbench fleet collect night")
@click.argument("folder", metavar="DIR", type=FOLDER)
def collect(folder: str) -> None:
    """Collect the results in DIR so far, and write DIR/fleet-document.json.

    Jobs may still run, and documents copied into DIR count as further machines.
    """
    from ..export.view.fleet import summary
    from ..records.encoding import encode

    found = read(Path(folder))
    try:
        replace(Path(folder) / COLLECTED, encode(found) + b"\n")
    except OSError as error:
        say(f"workbench: {folder}/{COLLECTED} cannot be written: {error.strerror}")
        sys.exit(FAILED)
    for warning in found.warnings:
        say(f"warning: {warning.one_line}")
    put([summary(found)])
    sys.exit(OK if found.is_complete else FAILED)


@command(
    "workbench fleet show night --price a100=2.99 --price cpu=0.10",
    "workbench fleet show night --json | jq '.rows[].choice'",
)
@click.argument("place", metavar="DIR|FILE", type=click.Path(exists=True, path_type=Path))
@price_options
@flag("--plain", "Text, even in a terminal.")
@flag("--markdown", "Tables for an issue.")
@json_option
def show(
    place: Path, prices: tuple[str, ...], price_file: str | None, plain: bool, markdown: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Show which node type suits each scenario.

    Machines do not take turns, so `either` means that no difference is certain.  --price takes the
    name of a node type or of a device.
    """
    from ..advisor.fleet import priced
    from ..export.markdown import tables
    from ..export.view.fleet import sections
    from ..export.view.table import UNLIMITED
    from ..planning.prices import given_prices
    from .launch import in_terminal, show_fleet

    def now() -> FleetDocument:
        found = read(place)
        types = {node.node_type for node in found.nodes}
        return priced(found, given_prices(prices, price_file, types))

    found = now()
    if as_json:
        echo_json(found)
    elif markdown or plain or not in_terminal():
        # Its columns are the answers, and text cannot be scrolled to the side as the screen is.
        put([tables(sections(found), as_markdown=markdown, table_width=UNLIMITED)])
    else:
        found = show_fleet(now, found)
    sys.exit(OK if found.is_complete else FAILED)


@command("workbench fleet plan --quick --per-type 1")
@of_a_fleet
def plan(as_json: bool, **options: Any) -> None:
    """Show the node types, and what would run where.  Nothing is submitted."""
    from ..fleet.plan import plan_lines

    planned = _plan(**options)
    if as_json:
        echo_json(PlanDocument(**head("fleet plan"), plan=planned))
    else:
        click.echo("\n".join(shown(line, 2000) for line in plan_lines(planned)))


@command("workbench fleet run --into DIR --model M.onnx")
@value("--into DIR", "A folder that the nodes share.", type=Path, required=True)
@flag("--detach", "Return once all jobs are submitted.")
@value("--every SECONDS", EVERY, "every_s", type=Seconds(1), default=15.0)
@of_a_fleet
@click.pass_context
def run(
    context: click.Context, /, into: Path, detach: bool, every_s: float, **options: Any
) -> None:
    """Submit a run of `advise` to nodes of each type, and wait for them.

    Exits 0 if all nodes answered, or with --detach if all jobs were submitted, and 1 otherwise.  If
    the launcher was killed, repeat the command with --into alone.
    """
    from ..export.view.fleet import summary
    from ..fleet.launcher import Launcher, begin, plan_in
    from ..fleet.plan import plan_lines

    into, default = into.resolve(), click.core.ParameterSource.DEFAULT
    if (planned := plan_in(into)) is None:
        planned = begin(into, _plan(**options))
        for line in plan_lines(planned):
            say(line)
    elif any(context.get_parameter_source(name) is not default for name in options):
        raise UsageError(f"{into} holds a fleet: go on with --into alone, or name {into / 'NEW'}")
    launcher = Launcher(into, planned, say)
    try:
        is_whole = launcher.submit()
        if detach:
            if planned.cluster == "ssh":
                say(f"to fetch what the hosts write: workbench fleet run --into {into}")
            sys.exit(OK if is_whole else FAILED)
        launcher.watch(every_s)
    except KeyboardInterrupt:
        outcome = f"the jobs go on; to wait again: workbench fleet run --into {into}"
        if sys.stdin.isatty() and click.confirm(f"\n{outcome}\ncancel them?", err=True):
            which = "the" if launcher.cancel() else "the other"
            outcome = f"{which} jobs are cancelled; what they wrote stays"
        say(f"workbench: {outcome}")
        sys.exit(CUT_SHORT)
    found = read(into, alone=True)
    say(f"{summary(found)} The tables: workbench fleet show {into}")
    sys.exit(OK if found.is_complete else FAILED)


@command("workbench fleet manifest --kubernetes --image IMAGE --pool pool=a100:1")
@flag("--kubernetes", "For kubectl.", required=True, expose_value=False)
@value("--image IMAGE", "A container image that has workbench.", required=True)
@value(
    "--pool LABEL=VALUE[:N]",
    "Node label of a pool, and the NVIDIA GPUs of each node.  Repeatable.",
    "pools",
    multiple=True,
    required=True,
)
@PER_TYPE
@of_a_run
def manifest(image: str, pools: tuple[str, ...], per_type: int, **options: Any) -> None:
    """Write an Indexed Job for each node pool; its log holds the document of each node.

    Paths are those in the image: nothing is copied there, and no file is read here.
    """
    from ..fleet.plan import kubernetes

    click.echo(kubernetes(image, pools, per_type, _request(in_image=True, **options)))


def _request(*, in_image: bool = False, **options: Any) -> Request:
    """The run of every node, checked without a machine and without files `in_image`."""
    from ..planning.rows import resolve
    from ..planning.scenarios import load_with
    from .launch import with_settings

    there = in_image and any(options[name] for name in ("scenario_file", "price_file", "torch"))
    with_settings(options)  # read here, since nodes have no settings of the user
    asked = question(options := {**options, "save_best": None})
    request = Request(question=asked, **options)
    if not there:
        resolve(request, *load_with(request.scenario_file))
    return request


def _plan(hosts: str | None, hosts_file: str | None, **options: Any) -> FleetPlan:
    from ..fleet.plan import make_plan
    from ..fleet.slurm import slurm_nodes
    from ..fleet.ssh import ssh_nodes

    partitions = options.pop("partitions")
    if sum(map(bool, (partitions, hosts, hosts_file))) > 1:
        raise UsageError("name one of --partition, --hosts and --hosts-file")
    names = "per_type", "shared", "deadline_s", "wheels", "scaling"
    settings = {name: options.pop(name) for name in names}
    if (wheels := settings["wheels"]) and settings["scaling"]:
        raise UsageError("--scaling needs an interpreter on a shared disk: leave out --wheels")
    if wheels and not [*Path(wheels).glob("cpu_gpu_workbench-*.whl")]:
        raise UsageError(f"{wheels} holds no wheel of workbench: fill it by `pip wheel`")
    python, request = options.pop("node_python"), _request(**options)
    by_ssh = hosts or hosts_file
    nodes = ssh_nodes(hosts, hosts_file) if by_ssh else slurm_nodes(partitions)
    return make_plan(nodes, request, python=python, **settings)


for each in (collect, show, plan, run, manifest):
    fleet.add_command(each)
for each in (run, manifest):
    adapt(each, LEFT_OUT)
adapt(plan, LEFT_OUT - {"as_json"})
