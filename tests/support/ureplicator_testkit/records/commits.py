"""Every commit of positions, in the order in which the target accepted them.

The coordinator keeps each commit as a record of `__consumer_offsets`. Read from the beginning, with
aborted transactions left out, they prove what the present positions cannot: that no commit of an
older owner was accepted after one of a newer owner, and that no position ever went back.

The format is the coordinator's: `OffsetCommitKey` 0 and 1, `OffsetCommitValue` 3 and 4 (Kafka 2.1 and
4.1 and later).
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ureplicator_common.kafka.provenance import Provenance
from ureplicator_testkit.records.topics import read_all

METADATA_AT = 14  # behind version, offset and leader epoch
OFFSETS_TOPIC = "__consumer_offsets"


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """One committed position."""

    partition: int
    offset: int
    owner_epoch: int
    worker: str


def commits(bootstrap: str, group: str, topic: str) -> list[CommittedOffset]:
    """Commits for one target topic, in order per partition."""
    log = read_all(bootstrap, OFFSETS_TOPIC)
    pairs = ((record.key, record.value) for part in log.values() for record in part if record.key)
    return [commit for key, value in pairs if (commit := decode(key, value, group, topic))]


def decode(
    key: bytes | None, value: bytes | None, group: str, topic: str
) -> CommittedOffset | None:
    assert key is not None
    if value is None or struct.unpack_from(">h", key)[0] > 1:
        return None  # a tombstone, or what is kept of a group's members
    names, at = [], 2
    for _ in range(2):
        name, at = _text(key, at)
        names.append(name)
    if names != [group, topic]:
        return None
    (partition,) = struct.unpack_from(">i", key, at)
    version, offset = struct.unpack_from(">hq", value)
    assert version in (3, 4), f"an OffsetCommitValue of version {version}"
    metadata = _text(value, METADATA_AT)[0] if version == 3 else _compact_text(value, METADATA_AT)
    written = Provenance.decode(metadata)
    assert written is not None, metadata
    return CommittedOffset(partition, offset, written.owner_epoch, written.worker)


def _text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    end = at + 2 + length
    return data[at + 2 : end].decode(), end


def _compact_text(data: bytes, at: int) -> str:
    """A compact string: its length plus one as a varint."""
    length = shift = 0
    while True:
        byte = data[at]
        length |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return data[at : at + length - 1].decode()


def violations(found: Iterable[CommittedOffset]) -> Iterator[str]:
    """Commits of an older owner than the commit before, and commits that went back."""
    last: dict[int, CommittedOffset] = {}
    for commit in found:
        before = last.get(commit.partition, commit)
        if commit.owner_epoch < before.owner_epoch:
            yield f"{commit} was taken after {before}: an older owner's"
        elif commit.offset < before.offset:
            yield f"{commit} was taken after {before}: it goes back"
        last[commit.partition] = commit


def last_offsets(found: Iterable[CommittedOffset]) -> Mapping[int, int]:
    return {commit.partition: commit.offset for commit in found}
