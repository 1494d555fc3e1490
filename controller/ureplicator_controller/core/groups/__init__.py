"""Sync of consumer groups: which offsets to write there, and the reason where none is."""
