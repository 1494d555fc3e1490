"""Requests with methods that HTTP does not define: counted, as one series."""

from __future__ import annotations

from ureplicator_testkit.control.rest_fixture import RestFixture


def test_methods_make_a_bounded_number_of_series(rest: RestFixture) -> None:
    for number in range(20):
        rest.client.open("/health", method=f"SCAN{number}")
    rest.client.get("/health")
    shown = rest.call("GET", "/metrics").get_data(as_text=True)
    assert "SCAN" not in shown
    assert 'method="other"' in shown
    assert 'method="GET"' in shown
