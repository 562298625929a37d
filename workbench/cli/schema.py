"""`workbench schema`: the JSON Schema of what a run writes."""

from __future__ import annotations

import click

from .options import Command, examples


@click.command(
    cls=Command,
    epilog=examples("workbench schema > document.schema.json", "workbench schema events"),
)
@click.argument("part", type=click.Choice(["document", "events"]), default="document")
def schema(part: str) -> None:
    """Print the JSON Schema of the document, or of an event.

    `events` is the schema of each line of --jsonl and of a journal.
    """
    from ..records.schema import document_schema, events_schema
    from .commands import echo_json

    echo_json(document_schema() if part == "document" else events_schema())
