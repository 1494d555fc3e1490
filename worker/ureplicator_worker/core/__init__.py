"""Decisions of a worker: a state and an event in, the next state and instructions out."""
