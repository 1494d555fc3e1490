"""Consumer groups: cost of their sync, and records that are read again after a failover."""
