"""`workbench fleet`: many machines, one advice."""

from __future__ import annotations

import sys
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

import click

from ..engine.exit_codes import FAILED, OK
from ..planning.usage import UsageError
from . import fleet_run
from .options import Command, Group, examples, json_option

if TYPE_CHECKING:
    from ..records.fleet_document import FleetDocument


@click.group(cls=Group)
def fleet() -> None:
    """Ask many machines the same question, and choose among them."""


def read(place: Path) -> FleetDocument:
    """What a folder says now, or a collected document; UsageError if it is neither."""
    from ..advisor.fleet import fleet_document
    from ..advisor.fleet_nodes import decoded, read_folder
    from ..advisor.recordings import why
    from ..records.fleet_document import FleetDocument
    from .commands import head

    if not place.is_dir():
        try:
            return decoded(place, FleetDocument)
        except Exception as error:
            text = f"{place} is not the document of a fleet: {why(error)}"
            raise UsageError(f"{text}; for other documents name their folder") from None
    found = read_folder(place, time())
    if not found.nodes and not found.warnings:
        raise UsageError(f"{place} holds no fleet.json and no document: name a fleet's folder")
    return fleet_document(head("fleet"), found)


@fleet.command(cls=Command, epilog=examples("workbench fleet collect night"))
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False))
def collect(folder: str) -> None:
    """Gather what has come into DIR so far, and write DIR/fleet-document.json.

    Jobs may still run, and documents that came by mail count as further machines.
    """
    from ..advisor.fleet import is_complete
    from ..export.view.fleet import summary
    from ..files.write import replace
    from ..records.encoding import encode
    from ..records.fleet_document import COLLECTED
    from ..text.output import put, say

    found = read(Path(folder))
    try:
        replace(Path(folder) / COLLECTED, encode(found) + b"\n")
    except OSError as error:
        raise UsageError(f"{folder}/{COLLECTED} cannot be written: {error.strerror}") from None
    for warning in found.warnings:
        say(f"warning: {warning.message}; {warning.remedy}")
    put([summary(found)])
    sys.exit(OK if is_complete(found) else FAILED)


@fleet.command(
    cls=Command,
    epilog=examples(
        "workbench fleet show night --price a100=2.99 --price cpu=0.10",
        "workbench fleet show night --json | jq '.rows[].choice'",
    ),
)
@click.argument("place", metavar="DIR|FILE", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--price",
    "texts",
    multiple=True,
    metavar="TYPE|DEVICE=PER_HOUR",
    help="Price per hour of a node type, or of its devices.  Repeatable.",
)
@click.option("--prices", "file", metavar="FILE.toml", help="Prices per hour from a file.")
@click.option("--plain", is_flag=True, help="Text, even in a terminal.")
@click.option("--markdown", is_flag=True, help="Tables for an issue.")
@json_option
def show(
    place: Path, texts: tuple[str, ...], file: str | None, plain: bool, markdown: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Show which node type each scenario should have.

    Between machines nothing was measured in turns: `either` means that no difference is sure.
    """
    from ..advisor.fleet import is_complete, priced
    from ..export.view.comparison import part_lines, part_markdown
    from ..export.view.facts import PROSE
    from ..export.view.fleet import parts
    from ..export.view.spans import plain_lines
    from ..planning.prices import given_prices
    from ..text.output import put, terminal_width
    from .commands import echo_json
    from .launch import in_terminal, show_fleet

    def now() -> FleetDocument:
        found = read(place)
        return priced(found, given_prices(texts, file, {node.node_type for node in found.nodes}))

    found = now()
    if as_json:
        echo_json(found)
    elif markdown:
        put([part_markdown(parts(found))])
    elif plain or not in_terminal():
        put([plain_lines(part_lines(parts(found), terminal_width() or PROSE))])
    else:
        found = show_fleet(now, found)
    sys.exit(OK if is_complete(found) else FAILED)


for command in fleet_run.COMMANDS:
    fleet.add_command(command)
