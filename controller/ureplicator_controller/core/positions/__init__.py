"""Positions without an owner: renewed, set, or deleted. Pure."""
