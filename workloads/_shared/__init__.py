"""Parts that several workloads share; no file here is a workload."""
