"""The plan: the owner of each partition, and the steps towards it. Pure."""
