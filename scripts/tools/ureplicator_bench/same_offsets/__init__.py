"""What the same offsets cost: copies without gaps and with them, and a log that begins far up."""
