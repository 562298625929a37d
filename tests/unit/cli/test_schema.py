"""`workbench schema` prints every schema."""

import json

import pytest
from click.testing import CliRunner

from workbench.cli.commands import PARTS
from workbench.cli.main import cli
from workbench.records.schema import PARTS as KNOWN, schema_of


@pytest.mark.parametrize("arguments", [(), *((part,) for part in KNOWN)])
def test_it_prints_json(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli, ["schema", *arguments])
    assert done.exit_code == 0
    assert json.loads(done.stdout) == schema_of("".join(arguments) or "document")


def test_every_schema_can_be_named() -> None:
    assert tuple(KNOWN) == PARTS


def test_an_unknown_part_is_a_usage_error() -> None:
    assert CliRunner().invoke(cli, ["schema", "everything"]).exit_code == 2
