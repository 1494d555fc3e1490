"""Lag of every partition, collected from both clusters while somebody asks."""
