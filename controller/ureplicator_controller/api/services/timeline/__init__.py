"""Timeline: figures of the routes and events of the last day, kept by each controller for itself."""
