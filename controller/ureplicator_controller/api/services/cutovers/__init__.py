"""Cutovers in REST: plans made of what both clusters say, and requests to the leader."""
