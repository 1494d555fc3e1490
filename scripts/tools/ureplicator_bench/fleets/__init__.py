"""Measurements of the control plane: large fleets, many partitions, handovers."""
