"""Sync of consumer groups: what is read from both clusters, and what is written to the target."""
