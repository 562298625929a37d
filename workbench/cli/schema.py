"""`workbench schema`: the JSON Schemas of what workbench writes."""

from __future__ import annotations

import click

from .options import Command, examples

PARTS = ("document", "events", "ab", "compare", "fleet", "fleet-plan", "runs")


@click.command(
    cls=Command,
    epilog=examples("workbench schema > document.schema.json", "workbench schema events"),
)
@click.argument("part", type=click.Choice(PARTS), default="document")
def schema(part: str) -> None:
    """Print the JSON Schema of the document, of an event, or of what another command prints.

    `events` is the schema of each line of --jsonl and of a journal.
    """
    from ..records.schema import schema_of
    from .commands import echo_json

    echo_json(schema_of(part))
