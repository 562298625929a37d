"""`workbench schema` prints the two schemas."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from workbench.cli.main import cli
from workbench.records.schema import document_schema, events_schema


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), document_schema()),
        (("document",), document_schema()),
        (("events",), events_schema()),
    ],
)
def test_it_prints_json(arguments: tuple[str, ...], expected: object) -> None:
    done = CliRunner().invoke(cli, ["schema", *arguments])
    assert done.exit_code == 0
    assert json.loads(done.stdout) == expected


def test_an_unknown_part_is_a_usage_error() -> None:
    assert CliRunner().invoke(cli, ["schema", "everything"]).exit_code == 2
