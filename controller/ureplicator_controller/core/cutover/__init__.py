"""Cutovers: clients of topics move to the other cluster of a route, and back. Pure."""
