"""Cutovers in tests: applications that move with their clusters, and histories of cutovers in memory."""
