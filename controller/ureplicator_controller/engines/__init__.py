"""Engines: threads and clients that read the fleet and carry out what `core` decides."""
