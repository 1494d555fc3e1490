"""Writing of a route's offset map: rows in the transaction that commits positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ureplicator_common.errors import TemporaryError
from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.offset_map.codec import Row


class MapRefused(TemporaryError):
    """The target does not let us write the map; positions can be committed without it."""


class MapLog(Protocol):
    """Topic of a route's map. Belongs to one thread."""

    def write(self, rows: Sequence[Row], store: PositionStore) -> None:
        """Add rows to the transaction that the store's next commit ends.

        Raises MapRefused, Fenced, ClusterUnavailable. After the latter two the outcome is unknown.
        """
        ...
