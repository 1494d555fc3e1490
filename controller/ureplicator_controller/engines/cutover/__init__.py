"""Cutovers as the leader carries them out: what is read of both clusters, and what is changed there."""
