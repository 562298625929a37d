"""The workloads, one file each; folders that begin with an underscore hold what they share."""
