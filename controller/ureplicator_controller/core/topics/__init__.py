"""Topics against what the Kafka clusters have: whitelisted, expanded, stopped. Pure."""
