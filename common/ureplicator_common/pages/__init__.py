"""Pages that each process serves of itself: their server, its TLS and its login."""
