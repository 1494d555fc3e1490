"""Claims on target topics in memory."""
