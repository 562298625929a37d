"""Numbers only: samples, intervals, paired ratios and the objectives that are compared."""
