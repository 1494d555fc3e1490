"""Measurements of how late records arrive."""
