"""Counters of copiers, added up over their runs."""
