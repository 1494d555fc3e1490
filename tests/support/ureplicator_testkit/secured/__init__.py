"""Servers that want TLS and logins, and the certificates for them."""
