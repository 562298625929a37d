"""The process that measures: one backend on one device; standard library only."""
