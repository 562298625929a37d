"""What is installed, and whether it works: versions, builds and short trials."""
