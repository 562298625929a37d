"""The error of a run that cannot be read, importable without the events."""


class JournalError(Exception):
    """A run cannot be read; the message has the cause and the remedy."""
