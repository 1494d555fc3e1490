"""Observation of the Spark cluster that a worker's copiers run on."""
