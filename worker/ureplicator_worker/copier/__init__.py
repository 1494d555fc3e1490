"""What runs inside a Spark task and moves the bytes."""
