"""A run on many machines, by engines that exist: Slurm, or ssh."""
