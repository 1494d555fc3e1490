"""Record batches as brokers store them: read, checked, rewritten, rebuilt."""
