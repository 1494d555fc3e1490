"""Traces of what operators request and of what the leader makes of it, for OpenTelemetry; off by default."""
