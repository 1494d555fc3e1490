"""Views for operators: events, owner changes, lag, workload, backup. Pure."""
