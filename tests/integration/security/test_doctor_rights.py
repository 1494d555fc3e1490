"""`ureplicator doctor` with a broker that denies rights to a login, and with wrong passwords."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported without __all__
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from ureplicator_testkit.control.command import run
from ureplicator_testkit.secured.brokers import PASSWORD, USER, granted
from ureplicator_testkit.secured.ends import Secured, logins
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.integration

SEEN_S = 30
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED


def denials(fleet: str) -> tuple[AclBinding, ...]:
    """Rights that a fleet must have at its target, denied to its user."""
    denied = (f"User:{USER}", "*", AclOperation.ALL, AclPermissionType.DENY)
    return (
        AclBinding(ResourceType.TRANSACTIONAL_ID, fleet, PREFIXED, *denied),
        AclBinding(ResourceType.GROUP, "ureplicator.", PREFIXED, *denied),
        AclBinding(ResourceType.BROKER, "kafka-cluster", LITERAL, *denied),
        AclBinding(ResourceType.TOPIC, "ureplicator-doctor", LITERAL, *denied),
    )


def examined(
    folder: Path, fleet: str, hosts: str, clusters: Mapping[str, Any]
) -> tuple[int, dict[str, str]]:
    """Exit code, and level by line about the target."""
    tree = {
        "fleet": fleet,
        "zookeeper": {"hosts": hosts},
        "clusters": dict(clusters),
        "routes": [{"source": "source", "target": "target", "offsets": "same"}],
    }
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump(tree))
    result = run("doctor", "--config", path, "--json", "--set", "controller.port=0")
    assert PASSWORD not in result.output
    found = json.loads(result.stdout)["findings"]
    return result.exit_code, {
        finding["reason"]: finding["level"]
        for finding in found
        if finding["subject"] == "cluster target"
    }


def test_rights_that_are_denied_are_named(
    secured: Secured, zookeeper: ZooKeeperServer, fleet: str, tmp_path: Path
) -> None:
    clusters = logins(secured, "SCRAM-SHA-512")

    def problems() -> dict[str, str]:
        code, found = examined(tmp_path, fleet, zookeeper.hosts, clusters)
        bad = {reason: level for reason, level in found.items() if level != "ok"}
        assert code == ("failure" in bad.values())
        return bad

    assert problems() == {}
    expected = {
        "may not write transactions": "failure",
        "may not commit positions": "failure",
        "may not create topics": "warning",
        "may not write control records": "warning",
        "may not delete records": "warning",
    }
    with granted(secured.target, denials(fleet)):
        eventually(
            lambda: (
                {reason.partition(":")[0]: level for reason, level in problems().items()}.items()
                >= expected.items()
            ),
            SEEN_S,
            "the denials are found",
        )
        assert all(
            "AUTHORIZATION_FAILED" in problem for problem in problems() if "may not" in problem
        )
    eventually(lambda: problems() == {}, SEEN_S, "the rights are back")


def test_wrong_password_is_named(
    secured: Secured, zookeeper: ZooKeeperServer, fleet: str, tmp_path: Path
) -> None:
    clusters = logins(secured, "SCRAM-SHA-512")
    clusters["target"]["sasl.password"] = "another-password"
    code, found = examined(tmp_path, fleet, zookeeper.hosts, clusters)
    assert code == 1
    [(reason, level)] = found.items()
    assert level == "failure"
    assert "SASL_AUTHENTICATION_FAILED" in reason
    assert "another-password" not in reason
