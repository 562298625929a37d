"""Campaigns and speed claims: `python -m benchmarks.NAME`."""

import os

# Its children keep the bytecode of what they import, as on a user's machine.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
