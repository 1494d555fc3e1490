"""The loop of a copier: sockets, events of threads, the link to the driver."""
