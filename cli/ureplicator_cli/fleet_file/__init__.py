"""`ureplicator apply`: a fleet is brought to what a file says."""
