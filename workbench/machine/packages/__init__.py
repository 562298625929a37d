"""The installed packages: versions, builds and short trials of whether they work."""
