"""Syncs of what target topics have beside the records: one thread for each route and kind."""
