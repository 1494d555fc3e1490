"""Shared by controller and worker: values, settings, and the clients of outside systems."""
