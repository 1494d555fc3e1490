"""The raw lane: whole record batches, still compressed."""
