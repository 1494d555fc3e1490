"""What the calls do: write intents, read the fleet, ask the clusters."""
