from collections.abc import Iterator, Sequence

class ControlRecord:
    offset: int
    key: bytes | None
    value: bytes | None
    abort: bool

class DefaultRecordBatch:
    CODEC_NONE: int
    base_offset: int
    last_offset_delta: int
    producer_id: int
    compression_type: int
    is_transactional: bool
    is_control_batch: bool

    def validate_crc(self) -> bool: ...
    def __iter__(self) -> Iterator[ControlRecord]: ...

class DefaultRecordBatchBuilder:
    def __init__(
        self,
        magic: int,
        compression_type: int,
        is_transactional: bool,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        batch_size: int,
    ) -> None: ...
    def append(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> object: ...
    def build(self) -> bytearray: ...
