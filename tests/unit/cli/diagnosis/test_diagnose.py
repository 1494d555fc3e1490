"""`ureplicator diagnose`: what is in the archive, and that no secret is."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

import pytest
import yaml

from ureplicator_cli.diagnosis.secrets import Redactor, masked_tree, secrets_in
from ureplicator_common.config.access import TlsSettings
from ureplicator_common.config.pages import PagesSettings
from ureplicator_common.model import PartitionState
from ureplicator_common.pages.web import WebServer, json_page
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.control.command import run
from ureplicator_testkit.control.rest_fixture import NewRest, RestFixture
from ureplicator_testkit.secured.certificates import Authority
from ureplicator_testkit.secured.outputs import findings

PLAIN, IN_FILE, DIGEST, TOKEN = (
    'planted,"in=cönfig',
    "planted-in-file",
    "planted-zk",
    "planted/token",
)
KEY_LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"
OWN = "planted-own-token-4711"
SECRETS = (PLAIN, IN_FILE, DIGEST, TOKEN, KEY_LINE, OWN)


@pytest.fixture
def rest(new_rest: NewRest) -> RestFixture:
    """REST with the document of its calls, which tells what can be read."""
    return new_rest(described=True)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    files = {
        "password": f"{IN_FILE}\n",
        "digest": f"fleet:{DIGEST}\n",
        "operators": f"olga {TOKEN}\n",
        "key.pem": f"-----BEGIN PRIVATE KEY-----\n{KEY_LINE}\n-----END PRIVATE KEY-----\n",
        "own": f"{OWN}\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    tree = {
        "fleet": "local",
        "zookeeper": {"hosts": "z:1", "digest_file": str(tmp_path / "digest")},
        "clusters": {
            "a": {"bootstrap.servers": "a:1", "sasl.password": PLAIN},
            "b": {
                "bootstrap.servers": "b:1",
                "sasl.password.file": str(tmp_path / "password"),
                "ssl.key.location": str(tmp_path / "key.pem"),
            },
        },
        "controller": {
            "access": {"mode": "tokens", "operator_tokens_file": str(tmp_path / "operators")}
        },
        "routes": [{"source": "a", "target": "b", "handlers": [{"config": {"api_token": PLAIN}}]}],
    }
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


def members(archive: Path) -> Mapping[str, str]:
    with tarfile.open(archive) as found:
        return {
            member.name.removeprefix("ureplicator-diagnosis/"): file.read().decode()
            for member in found.getmembers()
            if (file := found.extractfile(member)) is not None
        }


def test_archive_has_no_secret(rest: RestFixture, url: str, config: Path, tmp_path: Path) -> None:
    reason = f"refused: {IN_FILE}"
    rest.put_intent("orders", TopicIntent(1, 1, target_topic="orders"))
    rest.place("orders", {0: "w1"})
    rest.add_worker("w1")
    rest.put_states("w1", "orders", {0: PartitionState.ERROR}, reason=reason)
    log, out = tmp_path / "c1.log", tmp_path / "d.tar.gz"
    log.write_text("\n".join(f"kept line {word}" for word in (*SECRETS, "end")))
    own = tmp_path / "own"
    result = run(
        *(
            "diagnose",
            "--out",
            out,
            "--config",
            config,
            "--log",
            log,
            "--token-file",
            own,
            "--page",
            f"{url}/metrics",
        ),
        url=url,
    )
    assert result.exit_code == 0, result.output
    found = members(out)
    assert findings(found, SECRETS) == []
    assert "refused: ********" in found["rest/topics_orders.json"]
    assert {"versions.txt", "config.yaml", "rest/metrics.txt", "rest/validation.json"} <= set(found)
    assert "ureplicator_mismatches" in found["rest/metrics.txt"]
    assert found["logs/0-c1.log"].count("kept line") == len(SECRETS) + 1
    assert found["logs/0-c1.log"].endswith("kept line end")
    assert yaml.safe_load(found["config.yaml"])["clusters"]["a"]["bootstrap.servers"] == "a:1"
    assert out.stat().st_mode & 0o777 == 0o600
    assert "workers/w1/metrics.txt" in found
    assert "ureplicator_mismatches" in found["pages/0.txt"]


def test_without_a_controller(tmp_path: Path) -> None:
    out = tmp_path / "d.tar.gz"
    result = run("diagnose", "--out", out, "--url", "http://127.0.0.1:1")
    assert result.exit_code == 0, result.output
    assert "cannot reach a controller" in members(out)["rest/failure.txt"]


@pytest.mark.parametrize("tls", [False, True])
def test_pages_get_their_token_and_not_that_of_rest(tmp_path: Path, tls: bool) -> None:
    token, own, out = tmp_path / "pages-token", tmp_path / "own", tmp_path / "d.tar.gz"
    token.write_text("token-of-the-pages-0123456789")
    own.write_text("token-of-rest-0123456789")
    authority = Authority(tmp_path / "authority")
    served = authority.issue("pages")
    files = {"certificate_file": str(served.certificate), "key_file": str(served.key)}
    settings = PagesSettings(
        token_file=str(token), tls=TlsSettings(**files) if tls else TlsSettings()
    )
    server = WebServer(host="127.0.0.1", port=0, pages=settings)
    try:
        server.show({"/metrics": json_page(lambda: (HTTPStatus.OK, {"shown": True}))})
        page = f"{'https' if tls else 'http'}://127.0.0.1:{server.port}/metrics"
        words = ("diagnose", "--out", out, "--token-file", own, "--page", page)
        ca = ("--ca-file", authority.certificate)
        run(*words, *ca, url="http://127.0.0.1:1")
        assert "needs the token" in members(out)["pages/0.txt"]
        result = run(*words, *ca, "--pages-token-file", token, url="http://127.0.0.1:1")
        assert result.exit_code == 0, result.output
        assert '"shown": true' in members(out)["pages/0.txt"]
    finally:
        server.close()


def test_file_that_cannot_be_written(tmp_path: Path, url: str) -> None:
    result = run("diagnose", "--out", tmp_path / "none" / "d.tar.gz", url=url)
    assert result.exit_code == 1
    assert "cannot be written" in result.stderr
    result = run("diagnose", "--out", tmp_path / "d", "--log", tmp_path / "none", url=url)
    assert result.exit_code == 1
    assert "no file that can be read" in result.stderr


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sasl.password=abc def", "sasl.password=******** def"),
        ('{"token": "abc"}', '{"token": "********"}'),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ********"),
        ("at http://user:abc@host/x", "at http://********@host/x"),
        ("partition 7 of tokens", "partition 7 of tokens"),
    ],
)
def test_what_looks_like_a_secret_in_a_log(line: str, expected: str) -> None:
    assert Redactor(()).without_any(line) == expected


def test_short_secrets_leave_words_alone() -> None:
    assert Redactor(["on"]).without_secrets("online on one") == "online ******** one"


def test_nested_secrets() -> None:
    tree = {"password": ["one-secret", {"x": "two-secret"}], "list": [{"client_secret": "three"}]}
    assert secrets_in(tree) == {"one-secret", "two-secret", "three"}
    assert "secret" not in str(masked_tree(tree)["password"])
    assert masked_tree(tree)["list"] == [{"client_secret": "********"}]


def test_a_link_in_the_folder_of_the_archive_is_not_followed(
    rest: RestFixture, url: str, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("not yours")
    out = tmp_path / "diagnosis.tar.gz"
    (tmp_path / "diagnosis.tar.gz.part").symlink_to(victim)

    result = run("diagnose", "--out", out, url=url)

    assert result.exit_code == 0, result.output
    assert victim.read_text() == "not yours"
    assert out.stat().st_mode & 0o777 == 0o600
