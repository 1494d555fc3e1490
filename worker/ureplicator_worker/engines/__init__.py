"""Engines of a worker: they perform the instructions of `core` and put the results as events."""
