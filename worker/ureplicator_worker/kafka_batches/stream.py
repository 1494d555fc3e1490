"""Progress of a stream: where each micro-batch ends, and which ranges it has. See `planning`."""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_worker.kafka_batches.bounds import Offsets
from ureplicator_worker.kafka_batches.logs import Logs
from ureplicator_worker.kafka_batches.losses import present, report_loss
from ureplicator_worker.kafka_batches.options import Options
from ureplicator_worker.kafka_batches.planning import (
    OffsetRange,
    next_offsets,
    ranges_between,
    split,
)


class StreamProgress:
    """`target`: where a stream that reads what is available now ends."""

    def __init__(self, options: Options, logs: Logs) -> None:
        self._options = options
        self._logs = logs
        self._target: Mapping[tuple[str, int], int] | None = None
        self.latest: Offsets = {}

    def set_target(self) -> None:
        self._target = self._logs.last(self._logs.partitions())

    def next(self, start: Offsets, *, limit: int) -> Offsets:
        """End of the micro-batch from `start`, which is empty before the first one. Raises DataLost."""
        found = self._logs.partitions() if start else self._logs.all_partitions()
        self._report_losses(start, gone=start.keys() - found)
        self.latest = latest = self._logs.last(found)
        for key in found & start.keys():
            if latest[key] < start[key]:
                text = f"{key[0]}/{key[1]} ends at offset {latest[key]}, before {start[key]}"
                report_loss(self._options, text)
        new = found - start.keys()
        first = self._logs.first(new) if start else self._logs.at(self._options.start, new)
        target = self._target
        if target is not None:
            latest = {
                key: min(end, max(target[key], start.get(key, 0)))
                for key, end in latest.items()
                if key in target
            }
            first = {key: min(first[key], target[key]) for key in first if key in target}
        return next_offsets(start, first, latest, limit=limit)

    def _report_losses(self, start: Offsets, *, gone: set[tuple[str, int]]) -> None:
        for topic, number in sorted(gone):
            report_loss(
                self._options,
                f"{topic}/{number}, read up to offset {start[topic, number]}, is gone",
            )

    def ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """Ranges of the tasks of a micro-batch. Raises DataLost."""
        options = self._options
        ranges = ranges_between(start, end)
        first = self._logs.first({(range_.topic, range_.partition) for range_ in ranges})
        return split(
            present(options, ranges, first),
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
