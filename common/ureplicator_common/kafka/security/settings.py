"""The security of a cluster by librdkafka's property names. The only module that knows these names.

`parse` makes of the properties what our own sockets need, `librdkafka` what librdkafka is given. Both refuse
names that are unknown, and those that contradict each other, with the name.

A secret may stand in a file: the property is then named `<name>.file`. Such files are read when a connection
is opened, so that a changed secret counts without a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from ureplicator_common.errors import ConfigurationError
from ureplicator_common.kafka.security.secret import Secret
from ureplicator_common.printable import did_you_mean

PROTOCOL = "security.protocol"
MECHANISM = "sasl.mechanism"
MECHANISMS = "sasl.mechanisms"
USERNAME = "sasl.username"
PASSWORD = "sasl.password"  # noqa: S105  # a name
CA = "ssl.ca.location"
CERTIFICATE = "ssl.certificate.location"
KEY = "ssl.key.location"
KEY_PASSWORD = "ssl.key.password"  # noqa: S105  # a name
IDENTIFICATION = "ssl.endpoint.identification.algorithm"
OAUTH = "sasl.oauthbearer."
METHOD = OAUTH + "method"
CLIENT_ID = OAUTH + "client.id"
CLIENT_SECRET = OAUTH + "client.secret"
TOKEN_URL = OAUTH + "token.endpoint.url"
SCOPE = OAUTH + "scope"
EXTENSIONS = OAUTH + "extensions"
HTTPS_CA = "https.ca.location"
FILE = ".file"

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN = "PLAIN"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER = "OAUTHBEARER"

_TLS = (CA, CERTIFICATE, KEY, KEY_PASSWORD, IDENTIFICATION)
_BY_PASSWORD = (USERNAME, PASSWORD)
_BY_TOKEN = (METHOD, CLIENT_ID, CLIENT_SECRET, TOKEN_URL, SCOPE, EXTENSIONS, HTTPS_CA)
_SECRETS = (KEY_PASSWORD, PASSWORD, CLIENT_SECRET)
_IN_FILES = tuple(name + FILE for name in _SECRETS)
_KNOWN = frozenset((PROTOCOL, MECHANISM, MECHANISMS, *_TLS, *_BY_PASSWORD, *_BY_TOKEN, *_IN_FILES))
_PREFIXES = ("security.", "sasl.", "ssl.", "https.", "enable.ssl.", "enable.sasl.")


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Names of files. `ca`: "" for the authorities of the system."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    key_password: Secret | None = None
    verify_host: bool = True

    @property
    def files(self) -> tuple[str, ...]:
        named = (self.ca, self.certificate, self.key)
        password = self.key_password.file if self.key_password else ""
        return tuple(file for file in (*named, password) if file)


@dataclass(frozen=True, slots=True)
class PasswordLogin:
    mechanism: str
    username: str
    password: Secret


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """Client credentials. `extensions`: of SASL, as `(name, value)`."""

    client_id: str
    client_secret: Secret
    url: str
    scope: str = ""
    ca: str = ""
    extensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """Security of a cluster's connections. Without `tls` a connection is not encrypted; without `login`
    it is not authenticated by SASL."""

    tls: TlsSettings | None = None
    login: PasswordLogin | TokenLogin | None = None

    @property
    def secret_files(self) -> tuple[str, ...]:
        """All files whose content can change what a connection is opened with."""
        files = list(self.tls.files) if self.tls else []
        match self.login:
            case PasswordLogin(password=secret) | TokenLogin(client_secret=secret):
                files.append(secret.file)
            case None:
                pass
        return tuple(file for file in files if file)


def is_security(name: str) -> bool:
    """True for a property that this module answers for."""
    return name.startswith(_PREFIXES)


def parse(properties: Mapping[str, str]) -> SecuritySettings:
    """Raises ConfigurationError, with each wrong property."""
    found = faults(properties)
    if found:
        raise ConfigurationError("; ".join(f"{name}: {text}" for name, text in found))
    protocol = _protocol(properties)
    return SecuritySettings(
        tls=_tls(properties) if protocol.endswith("SSL") else None,
        login=_login(properties) if protocol.startswith("SASL") else None,
    )


def librdkafka(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties as librdkafka takes them, with the secrets as they are in their files now.

    Raises ConfigurationError, ClusterUnavailable.
    """
    settings = parse(properties)
    translated = {
        name: value for name, value in properties.items() if name not in (MECHANISMS, *_IN_FILES)
    }
    for name in _SECRETS:
        if name + FILE in properties:
            translated[name] = _secret(properties, name).read()
    if settings.login is not None:
        translated[MECHANISM] = _mechanism(properties)
    if isinstance(settings.login, TokenLogin):
        translated[METHOD] = "oidc"
    return translated


def faults(properties: Mapping[str, str]) -> list[tuple[str, str]]:
    """`(name, what is wrong)` of each property that is unknown, missing, or contradicts another one."""
    unknown = [name for name in properties if is_security(name) and name not in _KNOWN]
    found = [(name, f"is not offered{did_you_mean(name, _KNOWN)}") for name in unknown]
    protocol = _protocol(properties)
    if protocol not in PROTOCOLS:
        expected = ", ".join(PROTOCOLS)
        return [*found, (PROTOCOL, f"unknown value {protocol!r}, expected one of {expected}")]
    return [*found, *_tls_faults(properties, protocol), *_sasl_faults(properties, protocol)]


def _protocol(properties: Mapping[str, str]) -> str:
    return properties.get(PROTOCOL, PROTOCOLS[0]).upper()


def _mechanism(properties: Mapping[str, str]) -> str:
    return properties.get(MECHANISM, properties.get(MECHANISMS, "")).upper()


def _tls_faults(properties: Mapping[str, str], protocol: str) -> Iterator[tuple[str, str]]:
    if not protocol.endswith("SSL"):
        yield from _not_with(properties, _TLS, f"{PROTOCOL} {protocol}")
        return
    if _text(properties, IDENTIFICATION, "https").lower() not in ("https", "none"):
        yield IDENTIFICATION, "expected https or none"
    for one, other in ((CERTIFICATE, KEY), (KEY, CERTIFICATE)):
        if one in properties and other not in properties:
            yield other, f"is required with {one}"
    if _given(properties, KEY_PASSWORD) and KEY not in properties:
        yield KEY, f"is required with {KEY_PASSWORD}"
    yield from _secret_faults(properties, KEY_PASSWORD)


def _sasl_faults(properties: Mapping[str, str], protocol: str) -> Iterator[tuple[str, str]]:
    if not protocol.startswith("SASL"):
        names = (MECHANISM, MECHANISMS, *_BY_PASSWORD, *_BY_TOKEN)
        yield from _not_with(properties, names, f"{PROTOCOL} {protocol}")
        return
    if MECHANISM in properties and MECHANISMS in properties:
        yield MECHANISMS, f"is another name of {MECHANISM}: give one of them"
    mechanism = _mechanism(properties)
    if mechanism == OAUTHBEARER:
        yield from _not_with(properties, _BY_PASSWORD, mechanism)
        yield from _token_faults(properties)
    elif mechanism in (PLAIN, *SCRAM):
        yield from _not_with(properties, _BY_TOKEN, mechanism)
        yield from _required(properties, _BY_PASSWORD, mechanism)
        yield from _secret_faults(properties, PASSWORD)
    else:
        expected = ", ".join((PLAIN, *SCRAM, OAUTHBEARER))
        yield MECHANISM, f"expected one of {expected}"


def _token_faults(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if _text(properties, METHOD, "oidc").lower() != "oidc":
        yield METHOD, "expected oidc: the token is got by client credentials"
    yield from _required(properties, (CLIENT_ID, CLIENT_SECRET, TOKEN_URL), OAUTHBEARER)
    yield from _secret_faults(properties, CLIENT_SECRET)
    url = urlsplit(_text(properties, TOKEN_URL, "https://h"))
    if url.scheme != "https" or not url.hostname or url.username or url.password:
        yield TOKEN_URL, "expected https://host/path, without a user"
    if any("=" not in extension for extension in _extensions_of(properties)):
        yield EXTENSIONS, "expected name=value,name=value"


def _secret_faults(properties: Mapping[str, str], name: str) -> Iterator[tuple[str, str]]:
    if name in properties and name + FILE in properties:
        yield name + FILE, f"contradicts {name}: give one of them"


def _required(
    properties: Mapping[str, str], names: Iterable[str], mechanism: str
) -> Iterator[tuple[str, str]]:
    for name in names:
        if not _given(properties, name):
            yield name, f"is required with {MECHANISM} {mechanism}"


def _not_with(
    properties: Mapping[str, str], names: Iterable[str], what: str
) -> Iterator[tuple[str, str]]:
    for name in names:
        for key in (name, name + FILE):
            if key in properties and key in _KNOWN:
                yield key, f"is of no use with {what}"


def _text(properties: Mapping[str, str], name: str, default: str = "") -> str:
    return properties.get(name, default).strip()


def _given(properties: Mapping[str, str], name: str) -> bool:
    return bool(_text(properties, name) or _text(properties, name + FILE))


def _secret(properties: Mapping[str, str], name: str) -> Secret:
    file = _text(properties, name + FILE)
    return Secret(name + FILE, file=file) if file else Secret(name, properties.get(name, ""))


def _tls(properties: Mapping[str, str]) -> TlsSettings:
    ca = _text(properties, CA)
    return TlsSettings(
        ca="" if ca == "probe" else ca,
        certificate=_text(properties, CERTIFICATE),
        key=_text(properties, KEY),
        key_password=_secret(properties, KEY_PASSWORD)
        if _given(properties, KEY_PASSWORD)
        else None,
        verify_host=_text(properties, IDENTIFICATION, "https").lower() == "https",
    )


def _login(properties: Mapping[str, str]) -> PasswordLogin | TokenLogin:
    mechanism = _mechanism(properties)
    if mechanism != OAUTHBEARER:
        password = _secret(properties, PASSWORD)
        return PasswordLogin(mechanism, properties[USERNAME], password)
    pairs = (extension.partition("=") for extension in _extensions_of(properties))
    return TokenLogin(
        client_id=properties[CLIENT_ID],
        client_secret=_secret(properties, CLIENT_SECRET),
        url=_text(properties, TOKEN_URL),
        scope=_text(properties, SCOPE),
        ca=_text(properties, HTTPS_CA),
        extensions=tuple((name.strip(), value.strip()) for name, _, value in pairs),
    )


def _extensions_of(properties: Mapping[str, str]) -> list[str]:
    return [
        extension for extension in _text(properties, EXTENSIONS).split(",") if extension.strip()
    ]
