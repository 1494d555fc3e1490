"""The configuration file: its settings, and the sources they are read from."""
