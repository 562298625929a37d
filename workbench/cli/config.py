"""`workbench config`: choices that are remembered."""

from __future__ import annotations

import click

from ..planning.usage import UsageError
from .options import Command, examples


@click.command(cls=Command, epilog=examples("workbench config set prices cpu=0.10,gpu=2.99"))
@click.argument("change", required=False, type=click.Choice(("set", "unset")))
@click.argument("key", required=False, metavar="[KEY]")
@click.argument("value", required=False, metavar="[VALUE]")
def config(change: str | None, key: str | None, value: str | None) -> None:
    """Show the remembered choices and their file, or change one."""
    from ..files.config import KEYS, ConfigError, assign, load, path
    from ..text.output import say
    from ..text.sanitize import shown

    if change is not None:
        if key is None or (value is None) is (change == "set"):
            raise UsageError("it is `config set KEY VALUE` or `config unset KEY`")
        try:
            assign(key, value)
        except ConfigError as error:
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
