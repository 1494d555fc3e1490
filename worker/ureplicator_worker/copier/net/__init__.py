"""Connections of a copier to brokers, what they carry at a time, and what is known of their clusters."""
