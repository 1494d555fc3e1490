"""Measurements about Spark: its clusters, its Structured Streaming, its SQL."""
