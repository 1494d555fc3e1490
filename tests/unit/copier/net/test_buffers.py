"""Leased buffers are never shared, and their total is bounded."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from ureplicator_worker.copier.net.buffers import BufferPool, Lease, RouteShares

LIMIT = 1 << 20


class Pool(RuleBasedStateMachine):
    """Every holder writes its mark, and must find only its own."""

    leases = Bundle("leases")
    reserved = Bundle("reserved")

    def __init__(self) -> None:
        super().__init__()
        self.pool = BufferPool(limit_bytes=LIMIT)
        self.held: dict[int, tuple[Lease, int]] = {}
        self.abandoned: dict[int, memoryview] = {}
        self.count = 0
        self.reserved_bytes = 0

    @rule(target=leases, size=st.integers(0, LIMIT))
    def lease(self, size: int) -> Lease:
        lease = self.pool.lease(size)
        assert len(lease.view) == size
        self.count += 1
        lease.view[: min(4, size)] = self.count.to_bytes(4, "big")[: min(4, size)]
        self.held[id(lease)] = (lease, self.count)
        return lease

    @rule(target=leases, size=st.integers(0, LIMIT))
    def adopt(self, size: int) -> Lease:
        lease = self.pool.adopt(bytearray(size))
        self.count += 1
        lease.view[: min(4, size)] = self.count.to_bytes(4, "big")[: min(4, size)]
        self.held[id(lease)] = (lease, self.count)
        return lease

    @rule(target=reserved, size=st.integers(0, LIMIT))
    def reserve(self, size: int) -> int:
        self.pool.reserve(size)
        self.reserved_bytes += size
        return size

    @rule(size=consumes(reserved))
    def unreserve(self, size: int) -> None:
        self.pool.unreserve(size)
        self.reserved_bytes -= size

    @rule(limit=st.integers(0, 2 * LIMIT))
    def another_route_comes_or_goes(self, limit: int) -> None:
        self.pool.limit_bytes = limit

    @rule(size=st.integers(1, LIMIT))
    def room_is_what_the_limit_leaves(self, size: int) -> None:
        used = self.pool.used_bytes + self.reserved_bytes
        assert self.pool.has_room(size) == (used == 0 or used + size <= self.pool.limit_bytes)

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
        kept = sum(len(buffer) for buffers in self.pool._kept.values() for buffer in buffers)
        assert kept == self.pool._kept_bytes
        assert self.pool.reserved_bytes == self.reserved_bytes
        used = self.pool.used_bytes + self.reserved_bytes
        assert kept == 0 or used + kept <= self.pool.limit_bytes

    @invariant()
    def the_waste_is_small(self) -> None:
        for lease, _ in self.held.values():
            assert len(lease.view) <= lease.size_bytes <= 1.125 * len(lease.view)


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
    assert pool.lease(71_000).view.obj is first


def test_released_more_often_than_held_is_a_mistake() -> None:
    lease = BufferPool(limit_bytes=LIMIT).lease(1)
    lease.release()
    with pytest.raises(AssertionError):
        lease.release()


def test_routes_with_partitions_have_equal_shares() -> None:
    shares = RouteShares(limit_bytes=60)
    a, b, c = (shares.pool(name) for name in "abc")
    shares.share({"a"})
    assert (a.limit_bytes, b.limit_bytes, c.limit_bytes) == (60, 0, 0)
    a.adopt(bytes(60))
    shares.share({"a", "b", "c"})
    assert (a.limit_bytes, b.limit_bytes, c.limit_bytes) == (20, 20, 20)
    assert b.has_room(20)
    assert not a.has_room(1)
    shares.share({"b"})
    assert (a.limit_bytes, b.limit_bytes) == (0, 60)


def test_a_reservation_frees_what_is_kept() -> None:
    pool = BufferPool(limit_bytes=LIMIT)
    pool.lease(LIMIT).release()
    pool.reserve(LIMIT)
    assert pool._kept_bytes == 0
