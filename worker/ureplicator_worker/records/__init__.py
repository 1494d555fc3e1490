"""Records of exact offset ranges as Arrow batches, for Spark: SQL over records, and `kafka_batches`.

columns         stored batches to Arrow columns, without a Python object per field
range_reader    the committed records of a range, fetched by a task
offsets         first, last and by time, for planning ranges
"""
