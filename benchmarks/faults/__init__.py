"""The campaign that tries to break the program: `make faults` (see `__main__`)."""
