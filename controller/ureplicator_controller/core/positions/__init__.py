"""Positions that no worker takes care of: renewed, or deleted. Pure."""
