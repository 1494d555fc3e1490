"""The calls of REST, a module for each path prefix."""
