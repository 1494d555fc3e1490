"""The `ureplicator` command: starts the roles, and speaks to REST for operators."""
