"""Requests about topics that librdkafka does not offer."""
