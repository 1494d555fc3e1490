"""`If-Match`: a write only onto the state that the caller has read (optimistic concurrency control).

An ETag is the transaction id of the last write to the node that holds the intent (of a topic, a worker's
tags, the switches). It is never reused, as a node's version would be when a topic is deleted and added
again. It is compared with the node that is read, and the write names the version of that same node, so
ZooKeeper itself refuses a write in between.

The leader writes to these nodes too (a first position, a worker's slots), so an ETag may be outdated
though no operator wrote anything: a 412 means "read again".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ureplicator_common.coordination import Node

PATTERN = r'^(\*|"[0-9]{1,19}"( *, *"[0-9]{1,19}")*)$'
MISSING_NODE_TAG = 0
"""Tag of a node that does not exist and stands for the defaults."""

_TAG = re.compile(r'"([0-9]+)"')


@dataclass(frozen=True, slots=True)
class Precondition:
    """The versions that the caller accepts; `tags` is None for any."""

    tags: frozenset[int] | None = None
    must_exist: bool = False

    @classmethod
    def of(cls, header: str | None) -> Precondition:
        """The precondition of a header that matches `PATTERN`; None: no header."""
        if header is None:
            return cls()
        if header == "*":
            return cls(must_exist=True)
        return cls(frozenset(int(tag) for tag in _TAG.findall(header)), must_exist=True)

    def allows(self, node: Node | None) -> bool:
        return self.tags is None or _tag(node) in self.tags

    def allows_if_present(self, node: Node | None) -> bool:
        """True as for `allows`, and where a missing node becomes a 404, which is more specific."""
        return node is None or self.allows(node)


ALWAYS = Precondition()


def etag(node: Node | None) -> dict[str, str]:
    """The ETag header of a response."""
    return {"ETag": f'"{_tag(node)}"'}


def _tag(node: Node | None) -> int:
    return node.stat.mzxid if node is not None else MISSING_NODE_TAG
