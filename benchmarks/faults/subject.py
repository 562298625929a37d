"""The program under test, which need not be the one that this campaign belongs to."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

WHERE = "import workbench; print(workbench.__file__)"


@dataclass(frozen=True)
class Subject:
    """An interpreter, and the checkout whose `workbench` it imports."""

    python: str
    tree: Path

    @staticmethod
    def of(python: str) -> "Subject":
        # -P: the folder in which the campaign is started must not decide what is tested.
        found = subprocess.run([python, "-P", "-c", WHERE], capture_output=True, text=True)
        if found.returncode:
            sys.exit(f"{python} cannot import workbench: {found.stderr.strip()[-300:]}")
        return Subject(python, Path(found.stdout.strip()).resolve().parents[1])

    def command(self, *arguments: str | bytes) -> list[str | bytes]:
        return [self.python, "-P", "-m", "workbench", *arguments]

    @property
    def fixtures(self) -> Path:
        return self.tree / "tests" / "fixtures"
