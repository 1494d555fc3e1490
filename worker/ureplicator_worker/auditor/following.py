"""Continuous audits: passes over the topics of a route, behind its copy.

One auditor follows a route, by an ephemeral node. In a pass it reads the positions of all topics, and
compares of each topic what was copied since the last pass, the topics that were verified longest ago first.
All batches are compared by their checksums first, and records only where these do not prove that both sides
are equal (`matching`). What is left then is compared by records: no more than the route's byte rate allows
in `PASS_S`; beyond that it samples (`sampling`). A partition that was never compared begins at its position:
what was copied before is for a requested audit. The first comparison of a topic is short: it shows the size
of its records, which the rate is shared by.

A topic that fails is counted, shown in the auditor's status, and left out until it is tried again
(`failures`): the others go on. One that takes long is cut off, and keeps what was compared.

Ranges that differ are compared again in the next pass, and later after growing delays: what could not be
read then may be there now. So a difference stays only as long as it is one.

A topic without new records costs no comparison. Its state is written again once in a while, so that it
shows the time at which all that was copied had been compared.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

from ureplicator_common.audits import Follower, VerifiedRange
from ureplicator_common.audits.ranges import with_failure
from ureplicator_common.clock import Clock
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.coordination import OutcomeUnknown, Unavailable
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import LogReader, PartitionUnavailable, Position, PositionReader
from ureplicator_common.kafka.transactions.position_rows import (
    TargetPartition,
    readable,
    unreadable,
)
from ureplicator_common.kafka.transactions.visibility import hidden
from ureplicator_common.model import Route, TopicKey, TopicState, position_group
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_worker.audit.core.batches import Matched, OldFormat, Place
from ureplicator_worker.audit.result import (
    AuditRequest,
    AuditResult,
    PartitionRange,
)
from ureplicator_worker.audit.stored import Scan as StoredScan
from ureplicator_worker.audit.stored import Wanted
from ureplicator_worker.auditor.failures import Failures
from ureplicator_worker.auditor.matching import Scan, matched, matched_state
from ureplicator_worker.auditor.nodes import AuditNodes
from ureplicator_worker.auditor.outcome import (
    compared_ranges,
    corrected,
    difference_counts,
    failure_of,
    reason_of,
    stored_findings,
    written,
)
from ureplicator_worker.auditor.preparation import (
    Described,
    Preparation,
    not_comparable,
)
from ureplicator_worker.auditor.requests import Compare
from ureplicator_worker.auditor.sampling import (
    GUESSED_BYTES,
    Due,
    Sample,
    caught_up,
    differing,
    known_positions,
    passed_offsets,
    samples,
)

logger = logging.getLogger(__name__)

SCAN_S = 20.0
"""Most of a pass that checksums take; what they do not reach is left to the next pass."""
UNFINISHED_PASSES = 4
"""Passes in a row that leave a part of a topic; then a sample of its records is compared."""
PASS_S = 30.0
"""Half of the 60 s within which new records are compared: the other half is for the comparison."""
WATCH_S = 2.0
"""An auditor that does not follow tries to, in case the one that does has died."""
ROUND_S = 5.0
"""A comparison goes on with what is copied meanwhile, for so long at most."""
TOPIC_S = 2 * PASS_S
"""A topic that takes longer is cut off after its round. At the route's rate, one that takes the whole rate
is read in half of it."""
FIRST_ROUND_S = 0.5


_Compared = tuple[Due, str]
"""The topic as it is then; the reason why not all could be compared, "" if it could."""


class _TookTooLong(Exception):
    """Ends a comparison at the end of a round."""


class RouteFollower:
    """`passed`, `compared`: source offsets since the start of this process. `error`: of the last pass, "" if
    it came to its end."""

    def __init__(
        self,
        config: RouteConfig,
        *,
        fleet: str,
        auditor: str,
        nodes: AuditNodes,
        positions: Callable[[str], PositionReader],
        logs: Callable[[str], LogReader],
        preparation: Preparation,
        compare: Compare,
        scanner: StoredScan,
        clock: Clock,
    ) -> None:
        self.route: Route = config.route
        self._config = config
        self._group = position_group(fleet=fleet, route=config.route)
        self._auditor = auditor
        self._nodes = nodes
        self._positions, self._logs = positions, logs
        self._preparation = preparation
        self._compare = compare
        self._scanner = scanner
        self._clock = clock
        self._record_bytes: dict[TopicKey, float] = {}
        self._unfinished: dict[TopicKey, int] = {}
        self._differing: Failures[TopicKey] = Failures()
        self._measured = 0
        self.failures: Failures[TopicKey] = Failures()
        self.passed = self.compared = self.differences = self.passes = 0
        self.error = ""

    def step(self) -> bool:
        """One pass; False if another auditor follows the route. Raises what ends a whole pass: ZooKeeper or
        the target does not respond."""
        try:
            followed = self._pass()
        except Exception as error:
            self.error = reason_of(error)
            raise
        self.error = ""
        return followed

    def repeated(self) -> float:
        """One pass; the seconds from its begin to the next one: none if sizes of records became known."""
        known = self._measured
        if not self.step():
            return WATCH_S
        return PASS_S if self._measured == known else 0.0

    def _pass(self) -> bool:
        if not self._nodes.follow(self.route, Follower(self._auditor, self._clock.wall_ms())):
            return False
        due = sorted(self._due(), key=lambda topic: topic.oldest_ms)
        described = self._preparation.described(
            {
                topic.key: topic.intent
                for topic in due
                if topic.new(self._record_bytes) or topic.differs
            }
        )
        late_s = self._clock.monotonic_s() + SCAN_S

        def late() -> bool:
            return self._clock.monotonic_s() > late_s

        left = []
        for topic in due:
            matched = self._guarded(topic, partial(self._matched, topic, described, late))
            if matched is not None:
                left.append(matched)
        self._compare_rest(left, described)
        self._compare_again([topic for topic in due if topic.differs], described)
        self.passes += 1
        return True

    def _compare_rest(self, due: Sequence[Due], described: Described) -> None:
        """Records of what is not known to be equal, within the byte rate."""
        new = {topic.key: topic.new(self._record_bytes) for topic in due}
        total_bytes = sum(
            records.size_bytes for of_topic in new.values() for records in of_topic.values()
        )
        budget_bytes = self._config.audit.bytes_per_s * PASS_S
        share = min(1.0, budget_bytes / total_bytes) if total_bytes else 1.0
        for topic in due:
            size_bytes = sum(records.size_bytes for records in new[topic.key].values())
            chosen = samples(new[topic.key], budget_bytes=share * size_bytes)
            if self._guarded(topic, partial(self._topic, topic, chosen, described)) is not None:
                self.failures.remove(topic.key)

    def _compare_again(self, due: Sequence[Due], described: Described) -> None:
        """Ranges that differed before this pass, as far as they fit the byte rate."""
        now_s, budget_bytes = self._clock.monotonic_s(), self._config.audit.bytes_per_s * PASS_S
        for topic in due:
            record_bytes = self._record_bytes.get(topic.key, GUESSED_BYTES)
            topic = replace(topic, audit=self._nodes.state(topic.key))
            chosen = differing(topic, offsets=int(budget_bytes / record_bytes))
            if not topic.differs:
                self._differing.remove(topic.key)
            elif chosen and self._differing.due(topic.key, now_s=now_s):
                budget_bytes -= record_bytes * sum(
                    sample.next - sample.first for sample in chosen.values()
                )
                self._differing.add(topic.key, "differs", now_s=now_s)
                self._guarded(topic, partial(self._compared_again, topic, chosen, described))

    def _compared_again(
        self, due: Due, chosen: Mapping[int, Sample], described: Described
    ) -> _Compared:
        """Compare differing ranges again: findings replace the former ones where they cover all of them."""
        result, _ = self._compared(due, chosen, described, stop_at_end=True)
        found = compared_ranges(result, at_ms=due.read_ms)
        covered = {
            number: verified
            for number, verified in found.items()
            if due.is_covered(number, verified)
        }
        findings = [finding for finding in stored_findings(result) if finding.partition in covered]
        self._nodes.write(
            due.key, partial(corrected, compared=covered, findings=findings, intent=due.intent)
        )
        return due, ""

    def _guarded(self, due: Due, compare: Callable[[], _Compared]) -> Due | None:
        """Compare one topic: the topic as it is then; None: it failed, which is noted."""
        key = due.key
        try:
            due, why = compare()
        except (Unavailable, OutcomeUnknown):
            raise
        except Exception as error:  # whatever Spark raises: the other topics are compared
            logger.exception("%s is not compared behind the copy", key)
            why = reason_of(error)
            self._show(key, why)
        if not why:
            return due
        logger.warning("%s is tried again later: %s", key, why)
        self.failures.add(key, why, now_s=self._clock.monotonic_s())
        return None

    def _matched(self, due: Due, described: Described, late: Callable[[], bool]) -> _Compared:
        """Pass over what is equal by the checksums of its batches."""
        began = due.places
        if not began:
            return due, ""
        progress = matched(
            began,
            due.positions,
            scan=self._scan(due, described, late),
            compare=lambda gaps: self._compared_gaps(due, gaps, described),
            late=late,
            at_ms=due.read_ms,
        )
        passed = progress.passed(began)
        self.passed += passed
        self.compared += passed
        if progress.compared or progress.failure:
            change = partial(matched_state, progress=progress, intent=due.intent, passed=passed)
            self._nodes.write(due.key, change)
            due = replace(due, audit=change(due.audit))
        return self._left(due, progress.unfinished), progress.failure

    def _left(self, due: Due, unfinished: frozenset[int]) -> Due:
        """Leave partitions to the next pass, `UNFINISHED_PASSES` times at most."""
        count = self._unfinished.get(due.key, 0) + 1 if unfinished else 0
        if count > UNFINISHED_PASSES:
            count, unfinished = 0, frozenset()
        self._unfinished[due.key] = count
        return replace(due, unfinished=unfinished)

    def _scan(self, due: Due, described: Described, late: Callable[[], bool]) -> Scan:
        """Leave what cannot be read to the comparison of records, which says why."""
        request = self._request(due, (), described)

        def scan(places: Mapping[int, Place], ends: Mapping[int, int]) -> Mapping[int, Matched]:
            if request.not_comparable:
                return {}
            wanted = Wanted(
                due.key.route,
                due.key.topic,
                request.target_topic,
                places,
                ends,
                request.options.timestamps,
                {number: due.claim(number) for number in places},
            )
            try:
                return self._scanner(wanted, late=late)
            except (OperatingError, OldFormat) as error:
                logger.warning("%s: only records are compared: %s", due.key, error)
                return {}

        return scan

    def _show(self, key: TopicKey, failure: str) -> None:
        """Write only the failure: its cause may be the write of what was compared."""
        try:
            self._nodes.write(key, partial(with_failure, failure=failure))
        except (Unavailable, OutcomeUnknown):
            raise
        except Exception:
            logger.exception("the state of %s cannot be written", key)

    def _due(self) -> list[Due]:
        settings = self._preparation.settings(self.route)
        topics = {
            key: intent
            for key, intent in self._nodes.topics(self.route).items()
            if intent.state is TopicState.ACTIVE
            and not intent.stopped
            and not not_comparable(settings, key)
        }
        self._forget(topics)
        now_s = self._clock.monotonic_s()
        topics = {k: intent for k, intent in topics.items() if self.failures.due(k, now_s=now_s)}
        if not topics:
            return []
        read_ms = self._clock.wall_ms()
        wanted = {intent.target_topic: range(intent.partitions) for key, intent in topics.items()}
        with closing(self._positions(self.route.target)) as reader:
            found = reader.read(self._group, wanted)
        stored = readable(found)
        errors = {topic: error for (topic, _), error in unreadable(found).items()}
        due = [
            Due(
                key,
                intent,
                self._nodes.state(key),
                known_positions(stored, intent),
                read_ms,
                stored=stored,
            )
            for key, intent in topics.items()
        ]
        shown = [
            due_topic
            for due_topic in due
            if self._guarded(due_topic, partial(_shown, due_topic, errors))
        ]
        return self._visible(shown, stored)

    def _visible(self, due: Sequence[Due], stored: Mapping[TargetPartition, Position]) -> list[Due]:
        """Leave partitions to a later pass whose copy cannot be read up to the position yet."""
        new = {
            (due_topic.target_topic, number)
            for due_topic in due
            for number in due_topic.new(self._record_bytes)
        }
        if not new:
            return list(due)
        with closing(self._logs(self.route.target)) as logs:
            late = hidden({key: stored[key] for key in new}, logs)
        for (topic, number), why in sorted(late.items()):
            logger.info("%s/%d is compared later: %s", topic, number, why)
        return [
            due_topic.without({n for topic, n in late if topic == due_topic.target_topic})
            for due_topic in due
        ]

    def _forget(self, topics: Mapping[TopicKey, TopicIntent]) -> None:
        """Keep nothing of topics that are not followed any more."""
        self.failures.keep(topics.keys())
        self._differing.keep(topics.keys())
        for known in (self._record_bytes, self._unfinished):
            for key in known.keys() - topics.keys():
                del known[key]

    def _topic(self, due: Due, chosen: Mapping[int, Sample], described: Described) -> _Compared:
        """Compare records."""
        compared: dict[int, VerifiedRange] = {}
        result, why = self._compared(due, chosen, described) if chosen else (None, "")
        if result is not None:
            compared = compared_ranges(result, at_ms=due.read_ms)
            self._count(due.key, result)
        quiet = {
            number: verified
            for number, position in due.positions.items()
            if number not in chosen and (verified := caught_up(due, number, position))
        }
        compared |= quiet
        if compared or why != (due.audit.failure if due.audit else ""):
            skipped, passed = passed_offsets(chosen, compared)
            self.passed += passed
            self.compared += passed - skipped
            self._nodes.write(
                due.key,
                partial(
                    written,
                    compared=compared,
                    findings=[*(stored_findings(result) if result else ()), *due.findings(quiet)],
                    intent=due.intent,
                    skipped=skipped,
                    passed=passed,
                    failure=why,
                ),
            )
        return due, why

    def _compared_gaps(
        self, due: Due, gaps: Mapping[int, Sample], described: Described
    ) -> tuple[AuditResult | None, str]:
        result, why = self._compared(due, gaps, described, stop_at_end=True)
        self._count(due.key, result)
        return result, why

    def _request(
        self, due: Due, ranges: Sequence[PartitionRange], described: Described
    ) -> AuditRequest:
        return self._preparation.comparison(
            due.key,
            due.intent,
            ranges,
            described=described,
            bytes_per_s=self._config.audit.bytes_per_s,
            round_s=ROUND_S if due.key in self._record_bytes else FIRST_ROUND_S,
        )

    def _compared(
        self,
        due: Due,
        chosen: Mapping[int, Sample],
        described: Described,
        *,
        stop_at_end: bool = False,
    ) -> tuple[AuditResult, str]:
        """Result of the comparison, and the reason if it is not complete."""
        ranges = [
            PartitionRange(
                number, sample.next, sample.first, sample.target_first, claim=due.claim(number)
            )
            for number, sample in sorted(chosen.items())
        ]
        request = self._request(due, ranges, described)
        options = replace(request.options, stop_at_end=stop_at_end)
        request = replace(request, options=options)
        began_s = self._clock.monotonic_s()
        so_far: list[AuditResult] = []

        def on_progress(result: AuditResult) -> None:
            so_far[:] = [result]
            late = self._clock.monotonic_s() - began_s > TOPIC_S
            if late and failure_of(result):
                raise _TookTooLong

        try:
            result = self._compare(request, on_progress)
        except _TookTooLong:
            return so_far[0], f"not compared within {TOPIC_S:.0f} s"
        return result, failure_of(result)

    def _count(self, key: TopicKey, result: AuditResult) -> None:
        records = result.total("compared")
        self._measured += key not in self._record_bytes
        if records:
            self._record_bytes[key] = max(1.0, result.total("compared_bytes") / records)
        else:
            self._record_bytes.setdefault(key, GUESSED_BYTES)
        differences = difference_counts(result)
        self.differences += sum(differences.values())
        if differences:
            logger.error("%s differs behind the copy: %s", key, differences)


def _shown(due: Due, errors: Mapping[str, PartitionUnavailable]) -> _Compared:
    """Raises PartitionUnavailable for a topic whose positions the target does not show."""
    if due.target_topic in errors:
        raise errors[due.target_topic]
    return due, ""
