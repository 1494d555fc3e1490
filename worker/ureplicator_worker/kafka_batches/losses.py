"""Records that are gone before they were read: an error, or passed over (`failOnDataLoss`)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ureplicator_common.errors import PermanentError
from ureplicator_worker.kafka_batches.bounds import TopicPartition
from ureplicator_worker.kafka_batches.options import Options
from ureplicator_worker.kafka_batches.planning import OffsetRange

logger = logging.getLogger(__name__)


class DataLost(PermanentError):
    """Records that should be read are gone, and `failOnDataLoss` is true."""


def report_loss(options: Options, text: str) -> None:
    if options.fail_on_data_loss:
        raise DataLost(f"{text}; with the option failOnDataLoss=false reading goes on behind it")
    logger.warning("%s; reading goes on behind it", text)


def present(
    options: Options, ranges: Iterable[OffsetRange], first: Mapping[TopicPartition, int]
) -> Iterator[OffsetRange]:
    """The ranges without what retention has removed. Raises DataLost."""
    for range_ in ranges:
        begin = first[range_.topic, range_.partition]
        if begin > range_.start:
            text = (
                f"{range_.topic}/{range_.partition}: offsets {range_.start} to {begin - 1} are gone"
            )
            report_loss(options, text)
        if begin < range_.end:
            yield replace(range_, start=max(begin, range_.start))
