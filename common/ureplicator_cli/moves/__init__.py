"""Commands about moves of partitions: when they happen, and how far they are."""
