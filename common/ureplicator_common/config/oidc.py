"""Settings for the tokens of an identity provider."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal
from urllib.parse import urlsplit

from pydantic import model_validator

from ureplicator_common.config.section import Fault, Faults, Section

Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]
"""Algorithms with a private and a public key alone: with the others, who can judge a token can make one."""


class OidcSettings(Section):
    """Tokens of an identity provider (OpenID Connect), beside those of files."""

    issuer: str = ""
    """Address of the provider (HTTPS), as its tokens name it. Its keys are found by its
    `/.well-known/openid-configuration`. Empty: no provider."""
    audience: str = ""
    """Audience that a token must be made for, among others (`aud`): the name of uReplicator at the
    provider."""
    algorithms: tuple[Algorithm, ...] = ("RS256", "ES256")
    """Algorithms of signatures that count; tokens with any other are refused."""
    roles_claim: str = "roles"
    """Claim with the caller's roles or groups, a list or words. Dots lead into objects, as in
    `realm_access.roles`."""
    viewer_roles: tuple[str, ...] = ()
    """Roles at the provider whose holders may read."""
    operator_roles: tuple[str, ...] = ()
    """Roles at the provider whose holders may also change the fleet."""
    name_claim: str = "sub"
    """Claim with the caller's name for logs and the history. Default `sub`, which no user can choose."""
    ca_file: str = ""
    """Authorities of the provider's certificate, PEM. Empty: those of the system."""

    @property
    def enabled(self) -> bool:
        return bool(self.issuer)

    @model_validator(mode="after")
    def _fits(self) -> OidcSettings:
        faults = list(self._faults() if self.enabled else self._faults_without_issuer())
        if faults:
            raise Faults(faults)
        return self

    def _faults(self) -> Iterator[Fault]:
        url = urlsplit(self.issuer)
        if url.scheme != "https" or not url.hostname or url.username or url.query or url.fragment:
            yield Fault("issuer", "expected https://host/path, without a user or a query")
        if not self.audience:
            yield Fault("audience", "is required: tokens for other programs must not count here")
        if not self.algorithms:
            yield Fault("algorithms", "at least one is required")
        if not self.viewer_roles and not self.operator_roles:
            yield Fault("operator_roles", "without these and viewer_roles nobody may do anything")

    def _faults_without_issuer(self) -> Iterator[Fault]:
        if self.model_fields_set - {"issuer"}:
            yield Fault("issuer", "is required with the other settings of a provider")
