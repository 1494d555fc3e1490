"""Tasks: what operators requested and how far it is."""
