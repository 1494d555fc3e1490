"""Testkit: real servers, processes and network faults, models of Kafka and ZooKeeper, a simulation."""
