"""A run from start to end: detect, plan, race row by row, decide."""
