"""Metadata of a position: what it belongs to, who wrote it, and the target's end at that time.

Written with every commit of every partition, so it is short: one JSON array, a version first, topic ids in
Kafka's own notation (about 120 bytes; a coordinator accepts 4 KiB per partition). A field is only ever
added at the end: a reader ignores what it does not know, so that two versions can share a group during a
rolling upgrade. The former form, a JSON object with the names of the fields, is still read.

`target_end` makes lost records of the target visible. The log of a partition only grows, and nothing that
was acknowledged lies at or beyond its end: an end below `target_end` means that the target has lost
acknowledged records, as in an unclean election.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ureplicator_common.kafka import topic_id_text, topic_id_uuid

FORMAT = 1
UNKNOWN_END = -1
NOT_MAPPED = -1
LATER = ("target_end", "mapped", "map_chunks", "markers", "appends", "same")
"""Fields that the former form did not have."""
_ID_LENGTH = 22
"""Characters of a topic id in Kafka's notation."""


UNCOUNTED = -1
"""Sequence where the position was moved by hand: what follows in the target's log says nothing about it."""


class DataProducer(NamedTuple):
    """Producer under which records may follow behind a position, in the target's log. `name`: end of its
    transactional id (`model.data_transactional_id`). `sequence`: of the first record that follows."""

    name: str
    id: int
    epoch: int
    sequence: int = 0


class SameOffsets(NamedTuple):
    """Offsets of a partition whose records shall have those of the source.

    From the source offset `since` on an offset of the target is that of the source plus `shift`, for the
    reason `why` if they differ. `filling`: the target's log holds nothing but fillers yet, and is to begin at
    this offset; -1: it holds records, or may. `old`: what follows may be so old that brokers forget its
    producer at once, so no successor may use it on.
    """

    since: int
    shift: int = 0
    why: str = ""
    filling: int = -1
    old: bool = False


@dataclass(frozen=True, slots=True)
class Provenance:
    """`target_end`: next offset of the target's log after the last batch that was acknowledged before
    the commit; -1 unknown. `mapped`: target offset of the newest segment of the offset map at the commit; -1:
    committed without the map. `map_chunks`: chunks of the partition in the map's topic. `markers`: control
    records that follow at `target_end`, since the last batch was sent in a transaction that is committed.
    `appends`: the producer of exactly once without transactions; None where nothing may follow under one.
    `same`: None for a topic without equal offsets."""

    source_cluster: str
    source_topic: str
    target_topic: str
    worker: str
    slot: int
    owner_epoch: int
    target_end: int = UNKNOWN_END
    mapped: int = NOT_MAPPED
    map_chunks: int = 0
    markers: int = 0
    appends: DataProducer | None = None
    same: SameOffsets | None = None

    def encode(self) -> str:
        fields: list[object] = [
            FORMAT,
            self.source_cluster,
            _short(self.source_topic),
            _short(self.target_topic),
            self.worker,
            self.slot,
            self.owner_epoch,
            self.target_end,
            self.mapped,
            self.map_chunks,
            self.markers,
        ]
        if self.appends is not None or self.same is not None:
            fields.append(self.appends)
        if self.same is not None:
            fields.append(self.same)
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> Provenance | None:
        """None for metadata of another writer."""
        try:
            raw = json.loads(text)
            return _of_names(raw) if isinstance(raw, dict) else _of_array(raw)
        except (ValueError, KeyError, TypeError):
            return None


def _of_array(raw: Sequence[Any]) -> Provenance:
    """Raises ValueError, TypeError."""
    form, cluster, source, target, worker, slot, epoch, end, *rest = raw
    if form != FORMAT:
        raise ValueError(f"metadata of format {form}")
    defaults = (NOT_MAPPED, 0, 0, None, None)
    mapped, chunks, markers, appends, same = (*rest, *defaults[len(rest) :])[:5]
    ids = _long(source), _long(target)
    producer = None if appends is None else DataProducer(*appends[: len(DataProducer._fields)])
    offsets = None if same is None else SameOffsets(*same[: len(SameOffsets._fields)])
    return Provenance(
        cluster, *ids, worker, slot, epoch, end, mapped, chunks, markers, producer, offsets
    )


def _of_names(raw: Mapping[str, Any]) -> Provenance:
    """Raises KeyError."""
    names = [name for name in Provenance.__dataclass_fields__ if name not in LATER]
    return Provenance(**{name: raw[name] for name in names})


def _short(topic_id: str) -> str:
    try:
        id = uuid.UUID(topic_id)
    except ValueError:
        return topic_id
    return topic_id_text(id) if str(id) == topic_id else topic_id


def _long(text: str) -> str:
    return str(topic_id_uuid(text)) if len(text) == _ID_LENGTH else text
