"""`workbench fleet`: one run on many machines."""

import click

from . import fleet_run
from .options import Group


@click.group(cls=Group)
def fleet() -> None:
    """Ask many machines the same question, and choose among them."""


for command in fleet_run.COMMANDS:
    fleet.add_command(command)
