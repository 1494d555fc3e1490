"""`scripts/demo`: the whole product on this machine, from an empty checkout to a verified copy."""
