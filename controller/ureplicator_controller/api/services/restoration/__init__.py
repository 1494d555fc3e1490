"""Restoration of topics: one, or many in one request."""
