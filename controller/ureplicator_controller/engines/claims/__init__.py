"""Claims: at most one source topic for each target topic, within a fleet and between fleets."""
