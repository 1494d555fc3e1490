"""A Spark cluster of tests: master, Spark workers, executors."""
