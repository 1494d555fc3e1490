"""What the controller knows: the snapshot of the fleet and what is read off it. Pure."""
