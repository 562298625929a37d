"""The user's own code: a torch module, a function or a command, run as each candidate asks."""
