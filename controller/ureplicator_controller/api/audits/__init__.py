"""Audits in REST: states of topics, requests for an audit, metrics."""
