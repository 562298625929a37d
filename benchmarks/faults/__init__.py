"""The campaign that tries to break the program: `make faults` (see `test_faults`)."""
