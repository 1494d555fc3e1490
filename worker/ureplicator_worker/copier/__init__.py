"""The copier: it runs inside a Spark task and copies partitions."""
