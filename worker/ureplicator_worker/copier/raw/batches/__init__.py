"""Record batches: their headers, rebuilding, and the window they are sent from."""
