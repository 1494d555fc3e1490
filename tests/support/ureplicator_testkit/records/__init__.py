"""Topics and records: made, loaded while faults happen, read back and compared."""
