"""Views for operators: events, owner changes, lag, workload, export. Pure."""
