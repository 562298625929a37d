"""Starts child processes, talks to them, and ends them.

Standard library only, since workers, which may run under a foreign interpreter, start some too.
"""
