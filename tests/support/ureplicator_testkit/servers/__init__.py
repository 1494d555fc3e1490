"""Real servers and processes: ZooKeeper, Kafka, ports, proxies, and their clean-up."""
