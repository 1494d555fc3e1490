"""The right to copy: proofs, fences and commits, in a thread per route."""
