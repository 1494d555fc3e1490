"""The copier alone: its driver, a Kafka cluster in memory, and the clusters it copies between."""
