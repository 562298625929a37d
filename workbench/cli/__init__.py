"""The command line: a request in, an exit code out."""
