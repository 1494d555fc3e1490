"""A token of the provider: its signature, for whom and until when it is, and the role of its bearer.

The algorithms are those of the settings, whatever the token says: a token without signature, or one signed
with the public key as if that were a secret, is refused.

Source: RFC 8725 (best current practices for JSON Web Tokens).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import jwt
from jwt import PyJWTError

from ureplicator_common.clock import Clock
from ureplicator_common.config.oidc import OidcSettings
from ureplicator_controller.api.access.oidc.errors import TokenRefused
from ureplicator_controller.api.access.oidc.keys import ProviderKeys
from ureplicator_controller.api.access.oidc.provider import Provider
from ureplicator_controller.api.access.roles import Role
from ureplicator_controller.api.access.tokens import Token, digest_of

LEEWAY_S = 30.0
"""Clocks of the provider and of this machine may differ so much."""
PREFIX = "oidc:"
"""Prefix of the names of callers, since a name in a file of tokens has no colon."""
MAX_NAME = 128
_REQUIRED = ("exp", "iss", "aud")


class Bearers:
    """Callers with tokens of the provider. Raises ConfigurationError."""

    def __init__(self, settings: OidcSettings, *, clock: Clock) -> None:
        self._settings = settings
        self._keys = ProviderKeys(Provider(settings).keys, clock=clock)

    def token(self, presented: str) -> Token:
        """The caller and its role. Raises TokenRefused, ProviderUnavailable."""
        try:
            claims = self._claims(presented)
        except PyJWTError as error:
            raise TokenRefused(f"the token is refused: {error}") from None
        role = role_of_claims(claims, self._settings)
        return Token(_name(claims, self._settings.name_claim), role, digest_of(presented))

    def _claims(self, presented: str) -> Mapping[str, Any]:
        id = jwt.get_unverified_header(presented).get("kid")
        if not isinstance(id, str):
            raise TokenRefused("the token is refused: its header names no key")
        return jwt.decode(
            presented,
            self._keys.key(id),
            algorithms=list(self._settings.algorithms),
            audience=self._settings.audience,
            issuer=self._settings.issuer,
            leeway=LEEWAY_S,
            options={"require": list(_REQUIRED), "enforce_minimum_key_length": True},
        )


def looks_signed(presented: str) -> bool:
    """True for the form of a JSON Web Token: three parts, the first an object in base64."""
    return presented.count(".") == 2 and presented.startswith("eyJ")


def role_of_claims(claims: Mapping[str, Any], settings: OidcSettings) -> Role:
    """The highest role that one of the caller's roles at the provider gives."""
    held = _words(_found(claims, settings.roles_claim))
    if held & set(settings.operator_roles):
        return Role.OPERATOR
    return Role.VIEWER if held & set(settings.viewer_roles) else Role.NOBODY


def _found(claims: Mapping[str, Any], name: str) -> object:
    """A claim by its name, which may have dots, or by a path of names."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _words(claim: object) -> set[str]:
    if isinstance(claim, str):
        return set(claim.split())
    return {word for word in claim if isinstance(word, str)} if isinstance(claim, list) else set()


def _name(claims: Mapping[str, Any], claim: str) -> str:
    """The name as it is stored and logged: no spaces, slashes or control characters."""
    name = PREFIX + quote(str(claims.get(claim, "")), safe="@")
    if not len(PREFIX) < len(name) <= MAX_NAME:
        raise TokenRefused(f"the claim {claim} of the token is missing or too long for a name")
    return name
