"""The control plane over the store in memory: fleets, controllers, REST, and their contract tests."""
