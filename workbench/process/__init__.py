"""How child processes are started, spoken with and ended.

Standard library only, since workers, which may run under a foreign interpreter, start some too.
"""
