"""Finds the OpenMP runtimes of this process.

Standard library and Python 3.8 syntax only: `stack_trial` runs it under the workers' Python.
"""

import os
import re
import sys


def clashing_runtimes() -> dict[str, str]:
    """The OpenMP runtimes loaded in this process, if there is more than one kind; else {}."""
    with open("/proc/self/maps" if sys.platform == "linux" else os.devnull) as maps:  # noqa: PTH123
        found = set(re.findall(r"/(libgomp|libiomp|libomp)[^/\n]*\n", maps.read()))
    return {"OpenMP": " and ".join(sorted(found))} if len(found) > 1 else {}
