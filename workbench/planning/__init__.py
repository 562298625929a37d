"""From options to the plan of a run: which candidates, on which devices, at which sizes."""
