"""Bytes of the Kafka protocol, where the library's classes are too slow for the many rows of a response."""
