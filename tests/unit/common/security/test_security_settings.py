"""The security of a cluster by librdkafka's names: what is understood, refused, and passed on."""

from pathlib import Path

import pytest

from ureplicator_common.errors import ConfigurationError
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.security.secret import Secret
from ureplicator_common.kafka.security.settings import (
    PasswordLogin,
    SecuritySettings,
    TlsSettings,
    TokenLogin,
    faults,
    librdkafka,
    parse,
)

SERVERS = {"bootstrap.servers": "a:1"}
SASL = SERVERS | {"security.protocol": "SASL_SSL"}
BY_PASSWORD = SASL | {
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "me",
    "sasl.password": "hunter2",
}
BY_TOKEN = SASL | {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "hunter2",
    "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
}
MUTUAL = SERVERS | {
    "security.protocol": "ssl",
    "ssl.ca.location": "ca.pem",
    "ssl.certificate.location": "c.pem",
    "ssl.key.location": "k.pem",
    "ssl.key.password": "hunter2",
}


def test_plaintext() -> None:
    assert parse(SERVERS) == SecuritySettings()
    assert parse(SERVERS | {"security.protocol": "PLAINTEXT"}) == SecuritySettings()
    assert librdkafka(SERVERS) == SERVERS


def test_tls() -> None:
    password = Secret("ssl.key.password", "hunter2")
    assert parse(MUTUAL).tls == TlsSettings("ca.pem", "c.pem", "k.pem", password)
    assert parse(SERVERS | {"security.protocol": "SSL", "ssl.ca.location": "probe"}).tls == (
        TlsSettings()
    )
    unnamed = parse(MUTUAL | {"ssl.endpoint.identification.algorithm": "none"}).tls
    assert unnamed is not None
    assert not unnamed.verify_host


def test_a_login_by_password() -> None:
    found = parse(BY_PASSWORD)
    assert found.login == PasswordLogin("SCRAM-SHA-512", "me", Secret("sasl.password", "hunter2"))
    assert found.tls == TlsSettings()
    assert parse(BY_PASSWORD | {"security.protocol": "SASL_PLAINTEXT"}).tls is None
    assert librdkafka(BY_PASSWORD) == BY_PASSWORD


def test_another_name_of_the_mechanism() -> None:
    given = {n: v for n, v in BY_PASSWORD.items() if n != "sasl.mechanism"}
    given |= {"sasl.mechanisms": "scram-sha-512"}
    assert parse(given) == parse(BY_PASSWORD)
    assert librdkafka(given) == BY_PASSWORD


def test_a_login_by_token() -> None:
    more = {"sasl.oauthbearer.scope": "kafka", "sasl.oauthbearer.extensions": "a=1, b=2"}
    login = parse(BY_TOKEN | more | {"https.ca.location": "ca.pem"}).login
    assert isinstance(login, TokenLogin)
    assert (login.client_id, login.scope, login.ca) == ("me", "kafka", "ca.pem")
    assert login.extensions == (("a", "1"), ("b", "2"))
    assert librdkafka(BY_TOKEN)["sasl.oauthbearer.method"] == "oidc"


def test_a_secret_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    given = {n: v for n, v in BY_PASSWORD.items() if n != "sasl.password"}
    given |= {"sasl.password.file": str(file)}
    with pytest.raises(ClusterUnavailable, match=r"sasl\.password\.file: .* cannot be read"):
        librdkafka(given)
    file.write_text("")
    with pytest.raises(ClusterUnavailable, match="is empty"):
        librdkafka(given)
    file.write_text("hunter2\n")
    assert librdkafka(given) == BY_PASSWORD
    file.write_text("hunter3\n")
    assert librdkafka(given)["sasl.password"] == "hunter3"
    assert parse(given).secret_files == (str(file),)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (SERVERS | {"security.protocol": "SSH"}, {"security.protocol": "unknown value 'SSH'"}),
        (SASL, {"sasl.mechanism": "expected one of PLAIN"}),
        (SASL | {"sasl.mechanism": "GSSAPI"}, {"sasl.mechanism": "expected one of"}),
        (
            SASL | {"sasl.mechanism": "PLAIN"},
            {"sasl.username": "is required", "sasl.password": "is required"},
        ),
        (SERVERS | {"sasl.password": "hunter2"}, {"sasl.password": "of no use"}),
        (SERVERS | {"sasl.password.file": "f"}, {"sasl.password.file": "of no use"}),
        (SERVERS | {"ssl.ca.location": "f"}, {"ssl.ca.location": "of no use with security"}),
        (MUTUAL | {"sasl.mechanism": "PLAIN"}, {"sasl.mechanism": "of no use"}),
        (BY_PASSWORD | {"sasl.password.file": "f"}, {"sasl.password.file": "contradicts"}),
        (BY_PASSWORD | {"sasl.mechanisms": "PLAIN"}, {"sasl.mechanisms": "another name"}),
        (BY_PASSWORD | {"sasl.oauthbearer.scope": "s"}, {"sasl.oauthbearer.scope": "of no use"}),
        (BY_PASSWORD | {"sasl.kerberos.keytab": "k"}, {"sasl.kerberos.keytab": "not offered"}),
        (BY_PASSWORD | {"ssl.key.pem": "hunter2"}, {"ssl.key.pem": "not offered"}),
        (
            BY_PASSWORD | {"enable.ssl.certificate.verification": "false"},
            {"enable.ssl.certificate.verification": "not offered"},
        ),
        (
            BY_PASSWORD | {"ssl.endpoint.identification.algorithm": "ldaps"},
            {"ssl.endpoint.identification.algorithm": "https or none"},
        ),
        (BY_PASSWORD | {"ssl.key.location": "k"}, {"ssl.certificate.location": "is required"}),
        (BY_PASSWORD | {"ssl.certificate.location": "c"}, {"ssl.key.location": "is required"}),
        (BY_PASSWORD | {"ssl.key.password": "hunter2"}, {"ssl.key.location": "is required"}),
        (
            BY_TOKEN | {"sasl.oauthbearer.token.endpoint.url": "http://h/t"},
            {"sasl.oauthbearer.token.endpoint.url": "expected https"},
        ),
        (BY_TOKEN | {"sasl.oauthbearer.method": "default"}, {"sasl.oauthbearer.method": "oidc"}),
        (BY_TOKEN | {"sasl.oauthbearer.extensions": "a"}, {"sasl.oauthbearer.extensions": "name="}),
        (BY_TOKEN | {"sasl.username": "me"}, {"sasl.username": "of no use with OAUTHBEARER"}),
    ],
)
def test_refused_by_its_name(given: dict[str, str], expected: dict[str, str]) -> None:
    found = dict(faults(given))
    assert found.keys() == expected.keys()
    assert all(text in found[name] for name, text in expected.items())
    assert "hunter2" not in str(found)
    with pytest.raises(ConfigurationError):
        parse(given)


def test_no_secret_is_shown() -> None:
    for given in (BY_PASSWORD, BY_TOKEN, MUTUAL):
        assert "hunter2" not in repr(parse(given)) + str(parse(given))
