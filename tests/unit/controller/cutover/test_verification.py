"""Audits up to the ends that a cutover has drained."""

from __future__ import annotations

from ureplicator_common.audits import Differences, TopicAudit, VerifiedRange
from ureplicator_controller.core.cutover.verification import verification

ENDS = {"t": (5, 7), "u": (0,)}


def audit(*nexts: int) -> TopicAudit:
    return TopicAudit(
        partitions={number: VerifiedRange(0, next, 1) for number, next in enumerate(nexts)}
    )


def test_partitions_that_are_compared_up_to_their_ends() -> None:
    found = verification(ENDS, {"t": audit(5, 9)})
    assert found == ("3 of 3 partitions are compared up to their ends", (), ())


def test_partitions_that_are_not() -> None:
    found = verification(ENDS, {"t": audit(5, 6)})
    assert found.behind == ("t/1: compared up to 6 of 7",)
    assert found.text == "2 of 3 partitions are compared up to their ends"
    assert verification(ENDS, {}).behind == (
        "t/0: compared up to 0 of 5",
        "t/1: compared up to 0 of 7",
    )


def test_topics_whose_copies_differ() -> None:
    differs = VerifiedRange(0, 5, 1, differences=Differences(2, 4, {"missing": 2, "altered": 1}))
    found = verification({"t": (5,)}, {"t": TopicAudit(partitions={0: differs})})
    assert found.differs == ("t: 1 altered, 2 missing",)
    assert found.behind == ()
