"""Configuration: one frozen tree from a YAML file, the environment and `--set`."""
