"""Byte limits: division among the slots of the fleet."""
