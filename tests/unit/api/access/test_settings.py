"""`controller.access` against the address that REST listens on, and `controller.tls`."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from ureplicator_common.config.roles import ControllerSettings

FILE = "/etc/operators"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"host": "127.0.0.2"},
        {"host": "::1"},
        {"host": "localhost"},
        {"host": "0.0.0.0", "access": {"mode": "open"}},  # noqa: S104
        {"host": "10.0.0.1", "access": {"mode": "tokens", "operator_tokens_file": FILE}},
    ],
)
def test_what_may_start(settings: dict[str, Any]) -> None:
    ControllerSettings.model_validate(settings)


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"host": "0.0.0.0"}, "access.mode"),  # noqa: S104
        ({"host": "::"}, "access.mode"),
        ({"host": "controller-1"}, "access.mode"),
        ({"access": {"mode": "tokens"}}, "operator_tokens_file: is required"),
        ({"access": {"mode": "tokens", "viewer_tokens_file": FILE}}, "operator_tokens_file"),
        ({"access": {"operator_tokens_file": FILE}}, "mode: must be tokens"),
        ({"access": {"mode": "off"}}, "mode"),
        ({"tls": {"certificate_file": FILE}}, "key_file: is required"),
        ({"tls": {"key_file": FILE}}, "certificate_file: is required"),
        ({"tls": {"client_ca_file": FILE}}, "certificate_file: is required"),
    ],
)
def test_what_is_refused_at_start(settings: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        ControllerSettings.model_validate(settings)
