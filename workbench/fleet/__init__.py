"""A run on many machines, started by Slurm or over ssh."""
