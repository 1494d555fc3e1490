"""Consumer groups at the other end of a route: their states, translated offsets, failover."""
