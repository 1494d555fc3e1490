"""The connection between a worker and each of its copiers: messages, server, client."""
