"""The computer itself: CPU, memory, load, cgroups, and disturbances of a measurement."""
