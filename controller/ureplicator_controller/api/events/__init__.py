"""`/events`: server-sent events that tell pages when to read again."""
