"""Division of partitions among workers: who may copy what, even counts, even bytes per second. Pure."""
