"""Positions without an owner: renewed, or deleted. Pure."""
