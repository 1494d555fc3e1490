"""Topics and records: create, load during faults, read back and compare."""
