"""The `ureplicator` command: starts the roles, and operates a fleet through REST."""
