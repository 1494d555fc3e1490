from collections.abc import Iterator

from kafka.record.default_records import DefaultRecordBatch

class MemoryRecords:
    def __init__(self, bytes_data: bytes) -> None: ...
    def __iter__(self) -> Iterator[DefaultRecordBatch]: ...
