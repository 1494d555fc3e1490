"""The plan: which worker copies which partition, and the steps that lead there. Pure."""
