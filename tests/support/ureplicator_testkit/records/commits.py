"""Every commit of positions, in the order in which the target accepted them.

The coordinator keeps each commit as a record of `__consumer_offsets`. Read from the beginning, with
aborted transactions left out, they prove what the present positions cannot: that no commit of an
older owner was accepted after one of a newer owner, and that no position ever went back.

The format is the coordinator's: `OffsetCommitKey` 0 and 1, `OffsetCommitValue` 3 and 4 (Kafka 2.1 and
4.1 and later).
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING

from ureplicator_common.kafka.provenance import Provenance
from ureplicator_testkit.records.topics import offsets, read_all
from ureplicator_testkit.servers.replicas import GROUPS_TOPIC, partition_of

METADATA_AT = 14  # behind version, offset and leader epoch


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """One committed position."""

    partition: int
    offset: int
    owner_epoch: int
    worker: str


class CommitLog:
    """Commits of a group for one target topic, after this moment. `read` gives all of them so far: it reads
    from where it ended before, and the group's partition alone: the topic holds the commits of all tests."""

    def __init__(self, bootstrap: str, group: str, topic: str, *, since: int | None = None) -> None:
        """`since`: an offset, instead of this moment."""
        self._bootstrap, self._group, self._topic = bootstrap, group, topic
        ends = offsets(bootstrap, GROUPS_TOPIC)
        self._partition = partition_of(group, len(ends))
        self._next = ends[self._partition][1] if since is None else since
        self._found: list[CommittedOffset] = []

    def read(self) -> Sequence[CommittedOffset]:
        """Read the commits, in order per partition."""
        only = [self._partition]
        (records,) = read_all(self._bootstrap, GROUPS_TOPIC, only=only, since=self._next).values()
        for record in records:
            self._next = record.offset + 1
            if record.key:
                commit = decode(record.key, record.value, self._group, self._topic)
                self._found += [commit] if commit else []
        return self._found


def commits(bootstrap: str, group: str, topic: str) -> Sequence[CommittedOffset]:
    """All that the coordinator still has."""
    return CommitLog(bootstrap, group, topic, since=OFFSET_BEGINNING).read()


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
