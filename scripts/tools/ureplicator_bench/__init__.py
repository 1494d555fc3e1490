"""`scripts/bench`: this replicator and MirrorMaker 2, on the same servers, in one run."""
