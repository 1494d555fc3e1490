"""`scripts/demo`: the whole product on this machine, from nothing to a proven copy."""
