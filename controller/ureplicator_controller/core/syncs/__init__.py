"""Syncs of settings and access rights of topics: what is to be changed at the target. Pure."""
