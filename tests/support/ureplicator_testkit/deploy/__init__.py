"""Manifests of deploy/, rendered."""
