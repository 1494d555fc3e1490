"""`kafka_batches`: topics as DataFrames, by the code that reads records for SQL, without any jar.

options     options under the names of Spark's Kafka source
bounds      where reading begins and ends
planning    offset ranges of tasks and micro-batches
filters     ranges made smaller by the filters of a query
source      what Spark calls: the data source, its batch reader and its stream reader
"""
