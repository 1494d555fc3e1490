"""Topics whose positions the target does not show: the principal may not describe them there."""

from __future__ import annotations

from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.control.audit_fixture import AuditFixture
from ureplicator_testkit.control.following_fixture import GROUP, copied, follower
from ureplicator_testkit.kafka.clients import MemoryPositionReader


def test_a_topic_whose_positions_are_not_shown_does_not_hold_up_the_others() -> None:
    audits, positions = AuditFixture(), MemoryPositionReader()
    audits.whitelist("hidden", TopicIntent(1, 1, target_topic="hidden"))
    following = follower(audits, positions)
    positions.groups[GROUP].unreadable["hidden"] = "TOPIC_AUTHORIZATION_FAILED"
    copied(positions, 0, 0)
    following.step()
    copied(positions, 9, 9)
    audits.clock.advance(30)
    assert following.step()
    assert [request.topic for request in audits.compared] == ["orders"]
    reason = "PartitionUnavailable: hidden/0: TOPIC_AUTHORIZATION_FAILED"
    assert audits.written("hidden").failure == reason
    assert [failure.reason for failure in following.failures.failing.values()] == [reason]
    positions.groups[GROUP].unreadable.clear()
    copied(positions, 0, topic="hidden")
    audits.clock.advance(3_600)
    following.step()
    assert following.failures.failing == {}
    assert audits.written("hidden").failure == ""
