"""`workbench ab` with real workers."""

import sys
from pathlib import Path

from support import budget, printed

SOURCE = """
import os

def work():
    return sum(range(2000 * int(os.environ["LOOPS"]))) * 0 + 1
"""


def test_a_real_slowdown_is_found_and_exits_with_4(cli, tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "counted.py").write_text(SOURCE)
    done = cli(
        *("ab", "--function", "counted:work", "--threads", "1", *budget(15), "--json"),
        *("--path", str(tmp_path / "old"), "--path", str(tmp_path / "new")),
        *("--env", "LOOPS=10", "--env", "LOOPS=20", "--fail-on", "10%"),
    )
    found = printed(done, 4)
    (result,) = found["results"]
    assert (found["schema_version"], found["exit_code"], result["word"]) == (1, 4, "SLOWER")
    assert 1.1 < result["ci95"][0] < result["ratio"]
    assert result["ratio"] > 1.5


def test_a_side_that_cannot_run_is_named(cli) -> None:
    failing = cli("ab", "--command", "true", "--command", "false", *budget(5))
    assert failing.returncode == 1
    assert "side B (--command false): it failed" in failing.stdout
    other = ("--python", sys.executable, "--python", "/bin/false")
    dead = cli("ab", "matmul", "--set", "n=64", "--backend", "numpy", *other, *budget(5))
    assert dead.returncode == 1
    assert "side B (--python /bin/false): the worker process" in dead.stdout
