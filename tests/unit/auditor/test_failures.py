"""Audits that failed, and when each is tried again."""

from __future__ import annotations

from ureplicator_worker.auditor.failures import DELAYS_S, Failures


def test_delays_grow_until_it_succeeds() -> None:
    failures: Failures[str] = Failures()
    assert failures.due("orders", now_s=0)
    now_s = 0.0
    for delay_s in (*DELAYS_S, DELAYS_S[-1]):
        failures.add("orders", "no leader", now_s=now_s)
        assert not failures.due("orders", now_s=now_s + delay_s - 1)
        now_s += delay_s
        assert failures.due("orders", now_s=now_s)
    assert (failures.total, failures.failing["orders"].reason) == (len(DELAYS_S) + 1, "no leader")
    failures.remove("orders")
    failures.add("orders", "no leader", now_s=now_s)
    assert failures.due("orders", now_s=now_s + DELAYS_S[0])


def test_what_is_gone_is_forgotten() -> None:
    failures: Failures[str] = Failures()
    for name in ("clicks", "orders"):
        failures.add(name, "no leader", now_s=0)
    failures.keep({"orders"})
    assert list(failures.failing) == ["orders"]
    assert failures.total == 2


def test_an_outage_is_forgotten_within_minutes() -> None:
    failures: Failures[str] = Failures()
    for _ in range(100):
        failures.add("orders", "no broker responds", now_s=0)
    assert failures.due("orders", now_s=300)
