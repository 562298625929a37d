"""What several workloads have in common; no file here is a workload."""
