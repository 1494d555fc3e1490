"""Several fleets side by side: their condition, and topics that they should not share."""
