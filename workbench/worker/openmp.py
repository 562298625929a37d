"""Finds the OpenMP runtimes of this process.

Standard library and Python 3.8 syntax only: `stack_trial` runs it under the workers' Python.
"""

import re
from contextlib import suppress


def clashing_runtimes() -> dict[str, str]:
    """The OpenMP runtimes loaded in this process, if there is more than one kind; else {}."""
    found: set[str] = set()
    with suppress(OSError), open("/proc/self/maps") as maps:  # noqa: PTH123 - some have no /proc
        found.update(re.findall(r"/(libgomp|libiomp|libomp)[^/\n]*\n", maps.read()))
    return {"OpenMP": " and ".join(sorted(found))} if len(found) > 1 else {}
