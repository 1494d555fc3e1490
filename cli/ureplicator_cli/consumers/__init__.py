"""Commands for consumer groups at the other end of a route."""
