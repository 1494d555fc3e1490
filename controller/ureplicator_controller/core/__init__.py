"""Decisions of the leader as pure functions: a snapshot and a time in, a plan out."""
