"""Real servers and processes: ZooKeeper, Kafka, ports, proxies, and what ends them."""
