"""Quotas and SCRAM users of both ends of a route, which no sync carries over."""
