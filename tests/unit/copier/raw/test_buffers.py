"""Leased buffers are never shared, and their total is bounded."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from ureplicator_worker.copier.raw.net.buffers import BufferPool, Lease

LIMIT = 1 << 20


class Pool(RuleBasedStateMachine):
    """Every holder writes its mark, and must find only its own."""

    leases = Bundle("leases")
    former = Bundle("former")

    def __init__(self) -> None:
        super().__init__()
        self.pool = BufferPool(limit_bytes=LIMIT)
        self.held: dict[int, tuple[Lease, int]] = {}
        self.abandoned: dict[int, memoryview] = {}
        self.count = 0

    @rule(target=leases, size=st.integers(0, LIMIT))
    def lease(self, size: int) -> Lease:
        lease = self.pool.lease(size)
        assert len(lease.view) == size
        self.count += 1
        lease.view[: min(4, size)] = self.count.to_bytes(4, "big")[: min(4, size)]
        self.held[id(lease)] = (lease, self.count)
        return lease

    @rule(target=leases, lease=leases)
    def hold(self, lease: Lease) -> Lease:
        if id(lease) in self.held:
            lease.hold()
        return lease

    @rule(lease=consumes(leases), socket_still_sends=st.booleans())
    def release(self, lease: Lease, socket_still_sends: bool) -> None:
        if id(lease) not in self.held:
            return
        if socket_still_sends:
            view = lease.view
            lease.abandon()
            self.abandoned[id(view)] = view
        else:
            lease.release()
        if lease._holders == 0:
            del self.held[id(lease)]

    @invariant()
    def nobody_writes_into_what_is_held(self) -> None:
        for lease, mark in self.held.values():
            size = min(4, len(lease.view))
            assert bytes(lease.view[:size]) == mark.to_bytes(4, "big")[:size]

    @invariant()
    def what_a_socket_may_still_send_is_not_leased_again(self) -> None:
        others = {id(lease._buffer) for lease, _ in self.held.values()}
        kept = {id(buffer) for buffers in self.pool._kept.values() for buffer in buffers}
        assert not others & kept
        for view in self.abandoned.values():
            if not any(view.obj is lease._buffer for lease, _ in self.held.values()):
                assert id(view.obj) not in kept

    @invariant()
    def the_books_balance(self) -> None:
        assert self.pool.used_bytes == sum(lease.size_bytes for lease, _ in self.held.values())
        kept = sum(len(each) for buffers in self.pool._kept.values() for each in buffers)
        assert kept == self.pool._kept_bytes
        assert kept == 0 or self.pool.used_bytes + kept <= LIMIT


TestPool = Pool.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=30)


def test_one_response_is_always_allowed_however_large() -> None:
    pool = BufferPool(limit_bytes=100)
    assert pool.has_room(1_000)
    lease = pool.lease(1_000)
    assert not pool.has_room(1)
    lease.release()
    assert pool.has_room(1_000)


def test_buffers_are_used_again() -> None:
    pool = BufferPool(limit_bytes=LIMIT)
    lease = pool.lease(70_000)
    first = lease.view.obj
    lease.release()
    assert pool.lease(80_000).view.obj is first


def test_released_more_often_than_held_is_a_mistake() -> None:
    lease = BufferPool(limit_bytes=LIMIT).lease(1)
    lease.release()
    with pytest.raises(AssertionError):
        lease.release()
