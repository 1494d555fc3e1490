"""Settings and access rights that follow from a source topic to its target topic."""
