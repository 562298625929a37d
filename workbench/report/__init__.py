"""The state of a run: events folded one by one, read by every front end."""
