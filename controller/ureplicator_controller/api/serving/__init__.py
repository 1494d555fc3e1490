"""The server below REST: whole requests within a deadline, before a thread is spent on them."""
