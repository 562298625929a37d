"""The workloads, one file each; files that begin with an underscore are what they share."""
