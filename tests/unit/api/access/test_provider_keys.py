"""Keys of an identity provider: the times at which they are read, and what counts while it is away."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest
from jwt import PyJWK

from ureplicator_controller.api.access.oidc.errors import ProviderUnavailable, TokenRefused
from ureplicator_controller.api.access.oidc.keys import FRESH_S, RETRY_S, WAITING, ProviderKeys
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.secured.identity_provider import SigningKey

ONE = PyJWK(SigningKey("one").public)
OTHER = PyJWK(SigningKey("other").public)


class Published:
    """The provider's keys; `fault`: why they cannot be read."""

    def __init__(self) -> None:
        self.keys: Mapping[str, PyJWK] = {"one": ONE}
        self.fault = ""
        self.reads = 0

    def read(self) -> Mapping[str, PyJWK]:
        self.reads += 1
        if self.fault:
            raise ProviderUnavailable(self.fault)
        return self.keys


@pytest.fixture
def published() -> Published:
    return Published()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def keys(published: Published, clock: ManualClock) -> ProviderKeys:
    return ProviderKeys(published.read, clock=clock)


def test_keys_are_read_once_while_they_are_fresh(
    keys: ProviderKeys, published: Published, clock: ManualClock
) -> None:
    for _ in range(3):
        assert keys.key("one") is ONE
        clock.advance(FRESH_S / 4)
    assert published.reads == 1
    clock.advance(FRESH_S / 4)
    assert keys.key("one") is ONE
    assert published.reads == 2


def test_a_key_that_is_taken_back_is_refused_when_the_keys_are_read_again(
    keys: ProviderKeys, published: Published, clock: ManualClock
) -> None:
    assert keys.key("one") is ONE
    published.keys = {"other": OTHER}
    clock.advance(FRESH_S)
    with pytest.raises(TokenRefused):
        keys.key("one")


def test_a_new_key_counts_at_once_and_invented_ones_do_not_ask_again(
    keys: ProviderKeys, published: Published, clock: ManualClock
) -> None:
    assert keys.key("one") is ONE
    published.keys = {"one": ONE, "other": OTHER}
    clock.advance(RETRY_S)
    assert keys.key("other") is OTHER
    for number in range(100):
        with pytest.raises(TokenRefused):
            keys.key(f"invented-{number}")
    assert published.reads == 2


def test_the_last_keys_stay_in_force_while_the_provider_is_away(
    keys: ProviderKeys,
    published: Published,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert keys.key("one") is ONE
    published.fault = "no route to host"
    for _ in range(20):
        clock.advance(FRESH_S)
        assert keys.key("one") is ONE
        with pytest.raises(ProviderUnavailable):
            keys.key("other")
    assert caplog.text.count("no route to host") == 1
    published.fault, published.keys = "", {"other": OTHER}
    clock.advance(RETRY_S)
    assert keys.key("other") is OTHER


def test_without_any_key_nothing_can_be_judged(
    keys: ProviderKeys, published: Published, clock: ManualClock
) -> None:
    published.fault = "no route to host"
    for _ in range(50):
        with pytest.raises(ProviderUnavailable):
            keys.key("one")
    assert published.reads == 1
    published.fault = ""
    clock.advance(RETRY_S)
    assert keys.key("one") is ONE


def test_few_requests_wait_for_a_provider_that_hangs(clock: ManualClock) -> None:
    released, refused = threading.Event(), threading.Event()

    def read() -> Mapping[str, PyJWK]:
        assert released.wait(30)
        return {"one": ONE}

    keys = ProviderKeys(read, clock=clock)
    found: list[PyJWK] = []

    def ask() -> None:
        try:
            found.append(keys.key("one"))
        except ProviderUnavailable:
            assert not refused.is_set()
            refused.set()

    threads = [threading.Thread(target=ask) for _ in range(WAITING + 1)]
    for thread in threads:
        thread.start()
    assert refused.wait(30)
    released.set()
    for thread in threads:
        thread.join()
    assert found == [ONE] * WAITING
