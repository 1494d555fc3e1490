"""Contract of reading many nodes at once, and of a tree cache that reads or compares some of its nodes: for
the twin and for real ZooKeeper.

Beside `CoordinationContract`, whose fixtures it uses.
"""

from ureplicator_common.coordination import Coordination, Create, Delete, Set
from ureplicator_common.portions import portions
from ureplicator_testkit.control.coordination_contract import Calls, Ensemble, until_shown

MANY = 250
"""More than are read in one portion."""


class VerificationContract:
    """The suite."""

    def test_many_nodes_are_read_at_once_as_others_have_written_them(
        self, ensemble: Ensemble, client: Coordination, root: str
    ) -> None:
        paths = [f"{root}/{number}" for number in range(MANY)]
        other = ensemble.client()
        for some in portions(paths, 50):
            other.transact([Create(path, path.encode()) for path in some])
        found = client.read([f"{root}/none", *paths, paths[0]])
        assert [node and node.data for node in found] == [
            None,
            *(path.encode() for path in (*paths, paths[0])),
        ]

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
