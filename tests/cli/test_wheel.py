"""The wheel holds what it should, under the names it should."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from workbench.export.schema import schema_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built)


def test_the_wheel_has_three_packages_and_the_assets(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"workbench", "screens", "workloads"}
    assert "workbench/_assets/scenarios.toml" in names
    assert any(name.endswith(".tcss") for name in names)


def test_a_program_from_the_wheel_finds_its_assets(wheel, tmp_path, environment) -> None:
    site = tmp_path / "site"
    wheel.extractall(site)
    listed, schema = (
        subprocess.run(
            [sys.executable, "-m", "workbench", command],
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
        )
        for command in ("list", "schema")
    )
    assert listed.returncode == 0, listed.stderr
    assert "floating_point" in listed.stdout
    assert "matmul" in listed.stdout
    assert json.loads(schema.stdout) == schema_of("document")
