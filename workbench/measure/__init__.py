"""Timing in a worker, and the statistics that every front end shares."""
