"""Workers, live and known: what they hold, and draining them."""
