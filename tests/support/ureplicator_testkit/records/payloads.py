"""Compressed payloads of a batch of four records, and which versions of Kafka's own reader read them.

The verdicts in the file are those of Kafka's `DefaultRecordBatch`, which consumers and brokers use, of each
version: `kafka_reader.py` beside asks it, and writes them. A payload that is not read is refused by it with
an error, and by brokers when it is produced.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ureplicator_testkit.records.batches import HEADER_BYTES, batch, patched

COUNT = 4
PAYLOADS = Path(__file__).with_name("kafka_readers.json")


@dataclass(frozen=True, slots=True)
class Payload:
    """`name`: codec and form; `readers`: versions of Kafka that read four records."""

    name: str
    codec: int
    payload: bytes
    readers: tuple[str, ...]

    def batch(self, base_offset: int = 0) -> bytes:
        plain = batch(COUNT)
        whole = plain[:HEADER_BYTES] + self.payload
        length = len(whole) - 12
        return patched(whole, base_offset=base_offset, length=length, attributes=self.codec)


def kafka_payloads() -> list[Payload]:
    return [
        Payload(row["input"], row["codec"], bytes.fromhex(row["payload"]), tuple(row["read by"]))
        for row in json.loads(PAYLOADS.read_text())
    ]


def to_json(payloads: Sequence[Payload]) -> str:
    """Content of the file, a line for each payload."""
    rows = (
        {
            "input": payload.name,
            "codec": payload.codec,
            "payload": payload.payload.hex(),
            "read by": payload.readers,
        }
        for payload in payloads
    )
    return "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n"
