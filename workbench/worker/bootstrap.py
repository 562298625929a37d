"""Starts a worker under any interpreter: `PYTHON bootstrap.py MODULE ARGUMENT...`.

MODULE is `workbench.worker.worker`, or `workloads._ranks.rank` for one rank of a training.

Only the two packages that a worker needs become importable, by path.  With their parent folder on
`sys.path`, this installation's torch and numpy would hide the interpreter's own.
"""

import importlib
import importlib.util
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent  # workbench/


def expose(name: str, folder: Path) -> None:
    """Make `folder` importable as the package `name`."""
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None  # noqa: S101 - it ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    sys.path.pop(0)  # this script's own folder, whose modules must not hide others
    expose("workbench", PACKAGE)
    expose("workloads", PACKAGE.parent / "workloads")
    importlib.import_module(sys.argv[1]).main(sys.argv[2:])
