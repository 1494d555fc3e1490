"""Consumer groups that follow to the target: which offsets to write there, and the reason where none is."""
