from collections.abc import Iterator, Sequence
from typing import Protocol

class StoredRecord(Protocol):
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]

class StoredBatch(Protocol):
    def __iter__(self) -> Iterator[StoredRecord]: ...
    def validate_crc(self) -> bool: ...

class MemoryRecords:
    def __init__(self, data: bytes) -> None: ...
    def has_next(self) -> bool: ...
    def next_batch(self) -> StoredBatch | None: ...
