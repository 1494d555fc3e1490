"""What operators are shown: events, lag, workload, backup. Pure."""
