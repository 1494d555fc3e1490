"""What of a source topic follows to its target topic beside the records: settings and access rights."""
