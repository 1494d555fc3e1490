"""Faults of a token of an identity provider, and with the provider."""

from __future__ import annotations


class TokenRefused(Exception):
    """The caller is not known; the text says why and holds no part of the token."""


class ProviderUnavailable(Exception):
    """The provider did not give its keys, so a token can be neither accepted nor refused."""
