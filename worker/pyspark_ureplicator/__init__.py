"""`kafka_batches` for Spark, which finds data sources in modules whose names begin with `pyspark_`."""

from ureplicator_worker.kafka_batches.source import KafkaBatches as DefaultSource

__all__ = ["DefaultSource"]
