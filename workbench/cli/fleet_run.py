"""`workbench fleet plan`, `run` and `manifest`: the same run on many machines."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import catalog
from ..engine.exit_codes import CUT_SHORT, FAILED, OK
from ..export.formats import FORMATS
from ..planning.request import Request, words
from ..planning.usage import UsageError
from .options import (
    Command,
    all_of,
    examples,
    own_options,
    questions,
    run_options,
    scenario_options,
)

if TYPE_CHECKING:
    from ..records.fleet import FleetPlan

# Options of a run that each node has of its own, or that write a file there.
LEFT_OUT = {"python", "trace", "output", "control", "save_best", "no_samples", "what_if"}
LEFT_OUT |= {"verbose"}
LEFT_OUT |= {f"as_{name}" for name in FORMATS}
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
LATEST = "Cancel what has not ended by then, such as 30m; default 1h."
FOLDER = click.Path(file_okay=False, resolve_path=True, path_type=Path)


def _seconds(_: click.Context, option: click.Parameter, text: str) -> float:
    """`90s`, `30m` or `2h` in seconds."""
    found = re.fullmatch(r"([1-9]\d{0,5})([smhd])", text)
    if found is None:
        raise UsageError(f"{option.opts[0]} takes a time such as 90s, 30m or 2h, not {text!r}")
    return int(found[1]) * SECONDS[found[2]]


PER_TYPE = click.option(
    "--per-type", type=click.IntRange(1, 1000), default=2, help="Nodes of each type; default 2."
)
of_a_run = [
    click.argument("names", nargs=-1, metavar="[WORKLOAD|SCENARIO]..."),
    scenario_options,
    own_options,
    run_options,
]
of_a_fleet = all_of(
    [
        PER_TYPE,
        click.option("--partition", "partitions", multiple=True, help="Of Slurm.  Repeatable."),
        click.option("--hosts", metavar="A,B", help="Machines to reach by ssh, without Slurm."),
        click.option("--hosts-file", metavar="FILE.toml", help='The same as hosts = ["A", "B"].'),
        click.option("--shared", is_flag=True, help="Let other jobs run on the nodes meanwhile."),
        click.option("--deadline", "deadline_s", callback=_seconds, default="1h", help=LATEST),
        click.option("--python", "node_python", default=sys.executable, help="Path on the nodes."),
        *of_a_run,
    ]
)


@click.command(cls=Command, epilog=examples("workbench fleet plan --quick --per-type 1"))
@of_a_fleet
@click.option("--json", "json_", is_flag=True, help="The plan as JSON.")
def plan(json_: bool, **options: Any) -> None:
    """Show the node types, and what would run where.  Nothing is submitted."""
    from ..fleet.plan import plan_lines
    from ..text.sanitize import shown
    from .commands import echo_json, head

    planned = _plan(**options)
    if json_:
        echo_json({**head("fleet plan"), "plan": planned})
    else:
        click.echo("\n".join(shown(line, 2000) for line in plan_lines(planned)))


@click.command(cls=Command, epilog=examples("workbench fleet run --into DIR --model M.onnx"))
@click.option("--into", type=FOLDER, required=True, help="A folder that the nodes share.")
@click.option("--detach", is_flag=True, help="Return once all jobs are submitted.")
@click.option("--every", "every_s", type=click.FloatRange(1), default=15.0, help="Seconds.")
@of_a_fleet
@click.pass_context
def run(
    context: click.Context, /, into: Path, detach: bool, every_s: float, **options: Any
) -> None:
    """Submit one job for each node type and replica, and wait for them.

    Exits 0 if all nodes answered, and 1 if some did not.  After the launcher was killed, --into
    alone goes on.
    """
    from ..fleet.launcher import Launcher, begin, read_plan
    from ..text.output import say

    planned, default = read_plan(into), click.core.ParameterSource.DEFAULT
    if planned is None:
        planned = begin(into, _plan(**options))
    elif any(context.get_parameter_source(name) is not default for name in options):
        raise UsageError(f"{into} holds a fleet: go on with --into alone, or name a new folder")
    launcher = Launcher(into, planned, say)
    try:
        launcher.submit()
        if not detach:
            launcher.watch(every_s)
    except KeyboardInterrupt:
        outcome = f"the jobs go on; to wait again: workbench fleet run --into {into}"
        if sys.stdin.isatty() and click.confirm("\ncancel the jobs?", err=True):
            launcher.cancel()
            outcome = "the jobs are cancelled; what they wrote stays"
        say(f"workbench: {outcome}")
        sys.exit(CUT_SHORT)
    sys.exit(OK if detach or launcher.all_answered else FAILED)


@click.command(cls=Command, epilog=examples("workbench fleet manifest --kubernetes --image IMAGE"))
@click.option("--kubernetes", is_flag=True, required=True, help="For `kubectl apply -f -`.")
@click.option("--image", required=True, help="A container image that has workbench.")
@click.option("--pool", "pools", multiple=True, required=True, help="LABEL=VALUE of its nodes.")
@PER_TYPE
@all_of(of_a_run)
def manifest(
    image: str, pools: tuple[str, ...], per_type: int, kubernetes: bool, **options: Any
) -> None:
    """Write an Indexed Job for each node pool; its log holds the document of each node."""
    from ..fleet import manifest

    click.echo(manifest.kubernetes(image, pools, per_type, _request(**options)))


def _request(names: tuple[str, ...], **options: Any) -> Request:
    """The run of every node, checked as far as no machine is needed."""
    from ..planning import scenarios
    from ..planning.plan import resolve

    for name in ("devices", "backends", "precisions", "modes"):
        options[name] = words(options[name])
    asked: dict[str, Any] = questions(options := {**options, "save_best": None})
    asked["workloads" if {*names} & {*catalog.files()} else "scenarios"] = names
    request = Request(**asked, **options)
    resolve(request, *scenarios.load_with(request.scenario_file))
    return request


def _plan(hosts: str | None, hosts_file: str | None, **options: Any) -> FleetPlan:
    from ..fleet.nodes import slurm_nodes
    from ..fleet.plan import make_plan
    from ..fleet.ssh import ssh_nodes

    partitions = options.pop("partitions")
    if sum(map(bool, (partitions, hosts, hosts_file))) > 1:
        raise UsageError("name one of --partition, --hosts and --hosts-file")
    settings = {name: options.pop(name) for name in ("per_type", "shared", "deadline_s")}
    python, request = options.pop("node_python"), _request(**options)
    by_ssh = hosts or hosts_file
    nodes = ssh_nodes(hosts, hosts_file) if by_ssh else slurm_nodes(partitions)
    return make_plan(nodes, request, python=python, **settings)


COMMANDS = (plan, run, manifest)
for each in COMMANDS:
    each.params = [option for option in each.params if option.name not in LEFT_OUT]
