"""Lag of every partition, collected from both clusters while REST clients request it."""
