"""Runs the commands named in docs/workloads.md and inserts their output, without its warnings.

`make tables`, or `python benchmarks/tables.py [WORD...]` for the commands that contain a word.
One at a time, so that nothing disturbs them.
"""

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "workloads.md"
BLOCK = re.compile(r"<!-- \$ (?P<command>.+?) -->\n.*?<!-- end -->", re.DOTALL)
WARNINGS = re.compile(r"^! warning .*\n(?: {12}.*\n)*", re.MULTILINE)  # a third of the lines


def output_of(command: str) -> str:
    """The standard output of a `workbench ...` command."""
    program, *arguments = shlex.split(command)
    if program != "workbench":
        raise SystemExit(f"not a command of ours: {command}")
    with tempfile.TemporaryDirectory() as folder:  # --trace writes into it
        done = subprocess.run(
            [sys.executable, "-m", "workbench", *arguments, "--plain"],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            cwd=folder,
        )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{command} ended with {done.returncode}")
    return WARNINGS.sub("", done.stdout).rstrip()


def main() -> None:
    text = PAGE.read_text()
    words = sys.argv[1:]
    for block in BLOCK.finditer(text):
        command = block["command"]
        if words and not any(word in command for word in words):
            continue
        print(f"$ {command}", file=sys.stderr, flush=True)
        new = f"<!-- $ {command} -->\n```text\n$ {command}\n{output_of(command)}\n```\n<!-- end -->"
        PAGE.write_text(PAGE.read_text().replace(block[0], new))


if __name__ == "__main__":
    main()
