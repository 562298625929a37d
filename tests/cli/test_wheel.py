"""The wheel holds what it should, under the names it should."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_wheel_has_three_packages_and_the_assets(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"workbench", "screens", "workloads"}
    assert "workbench/_assets/scenarios.toml" in names
    assert any(name.endswith(".tcss") for name in names)


def test_a_program_from_the_wheel_finds_its_assets(tmp_path: Path, environment) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    listed = subprocess.run(
        [sys.executable, "-m", "workbench", "list"],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
    )
    assert listed.returncode == 0, listed.stderr
    assert "floating_point" in listed.stdout
    assert "matmul" in listed.stdout
