"""Cost of the same offsets: copies without gaps and with them, and a log that begins far up."""
