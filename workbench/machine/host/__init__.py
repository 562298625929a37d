"""The computer itself: processor, memory, load, cgroup, and what disturbs a measurement."""
