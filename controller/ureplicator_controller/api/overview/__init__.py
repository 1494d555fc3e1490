"""`/overview`: the whole fleet in one response, for the dashboard."""
