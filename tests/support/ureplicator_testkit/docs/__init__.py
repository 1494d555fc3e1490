"""The documentation: its generated parts, and the samples in it that tests check."""
