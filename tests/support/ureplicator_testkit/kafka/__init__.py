"""Kafka in memory: one model of logs and one of positions, and the clients that tests give them."""
