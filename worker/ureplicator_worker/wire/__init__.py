"""Bytes of the Fetch and Produce APIs, encoded by hand."""
