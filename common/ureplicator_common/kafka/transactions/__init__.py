"""Transactions on the wire: producers, requests to coordinators, fencing."""
