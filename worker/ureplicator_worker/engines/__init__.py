"""What performs a worker's instructions: Spark, lifelines, reports."""
