"""Copiers in tests: a driver for the real one, its data loop between clusters in memory, a stub."""
