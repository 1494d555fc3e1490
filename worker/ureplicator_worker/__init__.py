"""The worker: a Spark driver whose tasks copy partitions."""
