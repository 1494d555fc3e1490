"""Facts about the fleet: the snapshot, and what is derived from it. Pure."""
