"""Contract of a tree cache that reads or compares some of its nodes: for the twin and for real ZooKeeper.

Beside `CoordinationContract`, whose fixtures it uses.
"""

from ureplicator_common.coordination import Coordination, Create, Delete, Set
from ureplicator_testkit.control.coordination_contract import Calls, Ensemble, until_shown


class VerificationContract:
    """The suite."""

    def test_refresh_reads_some_paths_with_what_is_new_beside_them(
        self, ensemble: Ensemble, client: Coordination, root: str
    ) -> None:
        other = ensemble.client()
        for name in ("a", "b", "c"):
            client.transact([Create(f"{root}/{name}", b"1")])
        cache = client.tree_cache(root, lambda: None)
        until_shown(cache, {root: b"", **{f"{root}/{name}": b"1" for name in "abc"}})
        other.transact([Set(f"{root}/a", b"2", 0), Delete(f"{root}/b"), Create(f"{root}/d", b"2")])
        client.sync(root)
        cache.refresh({f"{root}/a", f"{root}/b"})
        shown = {path: node.data for path, node in cache.nodes().items()}
        assert shown == {root: b"", f"{root}/a": b"2", f"{root}/c": b"1", f"{root}/d": b"2"}

    def test_verified_nodes_change_nothing_that_is_current(
        self, client: Coordination, root: str
    ) -> None:
        calls = Calls()
        client.transact([Create(f"{root}/a", b"1")])
        cache = client.tree_cache(root, calls.changed)
        until_shown(cache, {root: b"", f"{root}/a": b"1"})
        calls.until_more_than(0, "the first load is reported")
        before = calls.changes
        for _ in range(3):
            cache.verify(10)
        client.transact([Set(f"{root}/a", b"2", 0)])
        until_shown(cache, {root: b"", f"{root}/a": b"2"})
        calls.until_more_than(before, "the change is reported")
        cache.verify(10)
        cache.refresh(())
        assert calls.changes == before + 1
