"""Requests about topics that librdkafka does not offer, and the logs of topics with one partition."""
