"""The control plane in memory: its engines, its REST, workers that only report."""
