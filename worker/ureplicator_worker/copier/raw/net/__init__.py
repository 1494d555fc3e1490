"""Connections to brokers, cluster metadata, and the Fetch and Produce APIs on the wire."""
