"""Topics compared with the Kafka clusters: whitelisted, expanded, stopped. Pure."""
