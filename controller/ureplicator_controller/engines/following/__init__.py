"""Engines of what follows to target topics beside the records: one thread for each route and kind."""
