"""Runs our code in a child process: `PYTHON bootstrap.py PARENT TARGET ARGUMENT...`.

TARGET is a module of ours, whose `main` takes the arguments (Python 3.10 or newer), or a file to
run as a script (3.8 or newer).  PARENT is the id of the process with which this one ends, `-` if a
wrapper may stand between the two, or `free`.

Modules are searched neither in the current folder nor in that of this script.  Of this installation
only the two packages that a child needs become importable, by path: with their parent folder on
`sys.path`, its torch and numpy would hide those of the interpreter.
"""

import os
import sys

# Before any other import: the first entry is this script's folder, unless -P or PYTHONSAFEPATH.
HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is slow to import
sys.path[:] = [folder for folder in sys.path if folder not in ("", HERE)]

import importlib  # noqa: E402
import importlib.util  # noqa: E402
import runpy  # noqa: E402
import signal  # noqa: E402

PR_SET_PDEATHSIG = 1  # prctl(2)


def end_with(parent: str) -> None:
    """Have the kernel kill this process, even a frozen one, when its parent ends (Linux).

    The end of the thread that started this process counts as its parent's end (prctl(2)).
    """
    if parent == "free" or sys.platform != "linux":
        return
    try:
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        return  # an interpreter without ctypes: the guardian ends it
    if parent != "-" and os.getppid() != int(parent):
        os._exit(1)  # the parent ended before the call


def expose(name: str, folder: str) -> None:
    """Make `folder` importable as the package `name`."""
    file = os.path.join(folder, "__init__.py")  # noqa: PTH118
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=[folder])
    assert spec is not None and spec.loader is not None  # it ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    _, parent, target, *arguments = sys.argv
    end_with(parent)
    sys.argv[:] = [target, *arguments]
    if target.endswith(".py"):
        runpy.run_path(target, run_name="__main__")
    elif sys.version_info < (3, 10):  # noqa: UP036 - it is the user's interpreter
        sys.exit("workers need Python 3.10 or newer, and this is {}.{}".format(*sys.version_info))
    else:
        package = os.path.dirname(HERE)  # noqa: PTH120
        expose("workbench", package)
        expose("workloads", os.path.join(os.path.dirname(package), "workloads"))  # noqa: PTH118, PTH120
        importlib.import_module(target).main(arguments)
