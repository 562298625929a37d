"""Ways out of a report: one file per format."""
