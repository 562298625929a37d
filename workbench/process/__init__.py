"""How child processes are started, spoken with and ended."""
