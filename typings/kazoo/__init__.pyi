"""Only what `ureplicator_common.coordination.zookeeper` uses; kazoo 2.11 carries no types."""
