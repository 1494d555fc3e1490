"""Shipped handler that masks fields of JSON values.

handler: "ureplicator_worker.handlers.mask:json_fields"
args: {fields: ["customer.email", "card"], mask: "***"}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from ureplicator_worker.handlers import Handler, Output, Record


class Mask(Handler):
    def __init__(self, fields: Sequence[str], mask: Any) -> None:
        self._paths = [field.split(".") for field in fields]
        self._mask = mask

    def handle(self, record: Record) -> Iterable[Record | Output]:
        """Raises for a value that is not JSON: it might hold what is to be masked."""
        if record.value is None:
            return (record,)
        value = json.loads(record.value)
        masked = [self._put(value, path) for path in self._paths]
        if not any(masked):
            return (record,)
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        return (record.output(value=text.encode()),)

    def _put(self, value: Any, path: Sequence[str]) -> bool:
        """Mask every place that the path leads to, through lists too; True if there was one."""
        if isinstance(value, list):
            return any([self._put(item, path) for item in value])
        if not isinstance(value, dict) or path[0] not in value:
            return False
        if len(path) > 1:
            return self._put(value[path[0]], path[1:])
        value[path[0]] = self._mask
        return True


def json_fields(fields: Sequence[str], mask: Any = "***") -> Handler:
    """`fields`: names, with dots for fields of fields. Tombstones are copied as they are."""
    return Mask(fields, mask)
