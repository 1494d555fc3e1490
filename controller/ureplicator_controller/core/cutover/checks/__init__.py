"""Checks of a plan of a cutover, by subject. Each takes the facts and yields findings. Pure."""
