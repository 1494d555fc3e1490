"""Fleets and workers as real processes."""
