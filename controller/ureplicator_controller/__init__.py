"""The controller: decides which worker copies what, and serves REST."""
