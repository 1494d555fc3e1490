"""The calls of REST: one module for each path prefix."""
