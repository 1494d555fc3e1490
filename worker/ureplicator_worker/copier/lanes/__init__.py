"""The lane of a route: whole batches and records through user code, over the same connections."""
