"""`If-Match`: write only onto what the caller has seen, so that no two operators undo each other.

An ETag is the transaction id of the last write to the node that holds the wish (a topic's intent, a
worker's tags, the switches). It never repeats, as a node's version would when a topic is deleted and
added again. It is compared with the node that is read, and the write names the version of the very
same node, so the store itself refuses what comes in between.

The leader writes to these nodes too (a first position, a worker's slots), so an ETag may be out of date
though no operator wrote anything: a 412 means "look again".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ureplicator_common.coordination import Node

PATTERN = r'^(\*|"[0-9]{1,19}"( *, *"[0-9]{1,19}")*)$'
NOTHING = 0
"""For a node that is not there, where that means "as it is by default"."""

_TAG = re.compile(r'"([0-9]+)"')


@dataclass(frozen=True, slots=True)
class Precondition:
    """What the caller means to write onto; `tags` is None for whatever is there."""

    tags: frozenset[int] | None = None
    must_be_there: bool = False

    @classmethod
    def of(cls, header: str | None) -> Precondition:
        """A header that `PATTERN` took, or none."""
        if header is None:
            return cls()
        if header == "*":
            return cls(must_be_there=True)
        return cls(frozenset(int(tag) for tag in _TAG.findall(header)), must_be_there=True)

    def allows(self, node: Node | None) -> bool:
        return self.tags is None or _tag(node) in self.tags

    def allows_if_present(self, node: Node | None) -> bool:
        """Where a node that is missing is a 404, which says more."""
        return node is None or self.allows(node)


ALWAYS = Precondition()


def etag(node: Node | None) -> dict[str, str]:
    """As a header of an answer."""
    return {"ETag": f'"{_tag(node)}"'}


def _tag(node: Node | None) -> int:
    return node.stat.mzxid if node is not None else NOTHING
