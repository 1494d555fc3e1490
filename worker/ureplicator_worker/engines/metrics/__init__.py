"""Metric families of a worker for what its copiers and its own processes measure."""
