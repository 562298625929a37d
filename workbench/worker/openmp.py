"""Finds the OpenMP runtimes of this process.

Standard library only and Python 3.8 syntax: `stack_trial` runs the same text under the workers'
interpreter.
"""

import os
import re
import sys


def clashing_runtimes() -> dict[str, str]:
    """The OpenMP runtimes that are loaded here, where they are of more than one kind."""
    with open("/proc/self/maps" if sys.platform == "linux" else os.devnull) as maps:  # noqa: PTH123
        found = set(re.findall(r"/(libgomp|libiomp|libomp)[^/\n]*\n", maps.read()))
    return {"OpenMP": " and ".join(sorted(found))} if len(found) > 1 else {}
