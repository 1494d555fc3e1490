"""Spellings of KIP-3, KIP-656 and MirrorMaker in a route, and the defaults that KIP-3 wants."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from ureplicator_common.config.route import RouteConfig
from ureplicator_common.model import Delivery, GapPolicy, HandlerSettings


def route(**options: Any) -> RouteConfig:
    return RouteConfig.model_validate({"source": "a", "target": "b", **options})


def test_without_any_setting_nothing_is_lost_or_repeated() -> None:
    settings = route().settings
    assert settings.delivery is Delivery.EXACTLY_ONCE
    assert settings.start == "earliest"
    assert settings.on_gap is GapPolicy.STOP
    assert settings.abort_on_send_failure
    assert settings.verify_crc
    assert settings.handlers == ()


@pytest.mark.parametrize("name", ["abort.on.send.failure", "abort.on.send.fail"])
@pytest.mark.parametrize("value", [True, False])
def test_both_spellings_of_the_kip_and_the_tool(name: str, value: bool) -> None:
    assert route(**{name: value}).settings.abort_on_send_failure is value


@pytest.mark.parametrize(
    ("value", "delivery"), [(True, Delivery.EXACTLY_ONCE), (False, Delivery.AT_LEAST_ONCE)]
)
def test_a_transactional_producer_is_a_delivery(value: bool, delivery: Delivery) -> None:
    assert route(**{"transaction.producer": value}).settings.delivery is delivery


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        ({}, {}),
        ({"message.handler.args": "a=1;b"}, {"args": "a=1;b"}),
        ({"message.handler.args": {"b": 1}}, {"b": 1}),
    ],
)
def test_a_message_handler_is_a_handler_of_all_topics(
    args: dict[str, Any], wanted: dict[str, Any]
) -> None:
    (handler,) = route(**{"message.handler": "shop.orders:make", **args}).settings.handlers
    assert handler == HandlerSettings(".*", "shop.orders:make", json.dumps(wanted))


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (
            {"abort.on.send.fail": True, "abort_on_send_failure": True},
            "abort.on.send.fail: abort_on_send_failure is given, too",
        ),
        (
            {"abort.on.send.fail": True, "abort.on.send.failure": True},
            "abort.on.send.fail: abort_on_send_failure is given, too",
        ),
        (
            {"transaction.producer": True, "delivery": "at_least_once"},
            "transaction.producer: delivery is given, too",
        ),
        (
            {"message.handler": "a:b", "handlers": []},
            "message.handler: handlers is given, too",
        ),
        ({"message.handler.args": "x"}, "message.handler.args: needs message.handler"),
        (
            {"transaction.producer": "maybe"},
            "transaction.producer: expected true or false, not 'maybe'",
        ),
        (
            {"consumer.rebalance.listener": "com.shop.Listener"},
            "consumer.rebalance.listener: on_assign and on_release of a handler take its place",
        ),
        (
            {"rebalance.listener.args": "x"},
            "rebalance.listener.args: on_assign and on_release of a handler take its place",
        ),
        ({"message.handler": "com.shop.Handler"}, "'com.shop.Handler' is not of the form"),
    ],
)
def test_options_that_are_no_good(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError) as caught:
        route(**options)
    assert fault in str(caught.value)
    assert caught.value.error_count() == 1
