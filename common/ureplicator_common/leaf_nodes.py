"""Nodes of a fleet that never have children and grow with its topics.

A tree cache asks a node for its children, and for a watch of these, unless it is known to have none. Nodes
whose number is that of the workers or less are not worth a rule.
"""

from __future__ import annotations

from collections.abc import Callable

from ureplicator_common.znodes.paths import Paths


def leaf_of(paths: Paths) -> Callable[[str], bool]:
    """The rule for a `tree_cache` of the fleet: true for what lies below a route or a cluster, as
    `topics/<route>/<topic>`."""
    folders = frozenset(
        {paths.topics, paths.targets, paths.blacklist, paths.ideal, paths.audits.states}
    )

    def is_leaf(path: str) -> bool:
        return path.rpartition("/")[0].rpartition("/")[0] in folders

    return is_leaf
