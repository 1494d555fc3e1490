"""The controller: decides which worker copies what, and answers REST."""
