"""`/groups`, `/offsets/translate` and `/failover`."""

from __future__ import annotations

import pytest

from ureplicator_common.model import RouteSettings
from ureplicator_common.znode_contents import GoneGroup, GoneGroups, TopicIntent
from ureplicator_common.znodes.routes import encode_gone
from ureplicator_testkit.control.memory_copied import BASE
from ureplicator_testkit.control.rest_fixture import ONE_ROUTE, ROUTE, NewRest, RestFixture

FIRST, SECOND = ("orders", 0), ("orders", 1)
COPIED = 100
"""`MemoryCopied` has copied so much, BASE further at the target."""


@pytest.fixture
def copied(rest: RestFixture) -> RestFixture:
    rest.publish(RouteSettings())
    rest.put_intent("orders", TopicIntent(2, 2, target_topic="orders"))
    rest.groups.add("billing", {FIRST: 30, SECOND: 40, ("elsewhere", 0): 7}, state="Stable")
    return rest


def test_groups_are_listed_with_their_states(copied: RestFixture) -> None:
    copied.groups.add("idle", {("elsewhere", 0): 7})
    copied.groups.add("audit", {FIRST: COPIED})
    copied.groups_there.add("audit", {FIRST: BASE + COPIED})
    shown = copied.client.get("/groups").get_json()["groups"]
    assert {group["group"]: (group["state"], group["partitions"]) for group in shown} == {
        "audit": ("synced", 1),
        "billing": ("pending", 2),
        "idle": ("no offsets", 0),
    }


def test_a_group_is_shown_at_both_ends(copied: RestFixture) -> None:
    copied.groups_there.add("billing", {SECOND: BASE + 45})
    shown = copied.client.get("/groups/billing").get_json()
    assert shown["state"] == "pending"
    first, second = shown["partitions"]
    assert (first["sourceOffset"], first["translated"], first["targetOffset"]) == (
        30,
        BASE + 30,
        None,
    )
    assert (first["readAgain"], first["skipped"]) == (0, 0)
    assert (second["state"], second["skipped"]) == ("ahead on the target", 5)
    assert copied.groups_there.commits == []


def test_what_a_group_has_read_beyond_the_copy_is_read_again(copied: RestFixture) -> None:
    copied.groups.add("fast", {FIRST: COPIED + 12})
    (shown,) = copied.client.get("/groups/fast").get_json()["partitions"]
    assert (shown["translated"], shown["readAgain"]) == (BASE + COPIED, 12)


def test_what_an_open_transaction_holds_back_is_not_called_copied(copied: RestFixture) -> None:
    copied.copied.held = 7
    copied.groups.add("done", {FIRST: COPIED})
    copied.groups.add("dirty", {FIRST: COPIED + 5})
    planned = copied.client.post("/failover?dry_run=true", json={"groups": ["dirty", "done"]})
    dirty, done = (group["partitions"][0] for group in planned.get_json()["groups"])
    assert (dirty["held"], done["held"]) == (7, 7)
    held = f"7 offsets behind {COPIED} are held by an open transaction: not copied before it ends"
    assert done["reason"] == held
    copied.client.post("/failover", json={"groups": ["dirty"]})
    (dirty,) = copied.client.get("/groups/dirty").get_json()["partitions"]
    assert dirty["state"] == "waits for the copy"
    assert dirty["reason"] == f"the group has read beyond the position of the copy: {held}"


def test_a_failover_writes_the_offsets(copied: RestFixture) -> None:
    planned = copied.client.post("/failover?dry_run=true", json={"groups": ["billing"]}).get_json()
    assert (planned["dryRun"], copied.groups_there.commits) == (True, [])
    assert [group["state"] for group in planned["groups"]] == ["pending"]
    done = copied.client.post("/failover", json={"groups": ["billing"]}).get_json()
    assert [group["state"] for group in done["groups"]] == ["synced"]
    assert copied.groups_there.commits == [
        ("billing", FIRST, BASE + 30),
        ("billing", SECOND, BASE + 40),
    ]


def test_a_failover_of_topics_leaves_other_topics_alone(copied: RestFixture) -> None:
    copied.put_intent("quiet", TopicIntent(1, 1, target_topic="quiet"))
    copied.groups.add("both", {FIRST: 5, ("quiet", 0): 6})
    copied.groups.add("other", {("quiet", 0): 6})
    done = copied.client.post("/failover", json={"topics": ["quiet"]}).get_json()
    assert [group["group"] for group in done["groups"]] == ["both", "other"]
    assert {partition for _, partition, _ in copied.groups_there.commits} == {("quiet", 0)}


def test_a_group_with_members_at_the_target_is_left_alone(copied: RestFixture) -> None:
    copied.groups_there.add("billing", {FIRST: 3}, state="Stable")
    (found,) = copied.client.post("/failover", json={"groups": ["billing"]}).get_json()["groups"]
    assert found["state"] == "active on the target"
    assert copied.groups_there.commits == []


def test_a_group_that_is_not_there_keeps_the_others_from_being_written(copied: RestFixture) -> None:
    response = copied.client.post("/failover", json={"groups": ["billing", "biling"]})
    assert response.status_code == 404
    assert "'biling'" in response.get_json()["detail"]
    assert copied.groups_there.commits == []


@pytest.mark.parametrize("body", [{}, {"groups": ["a"], "topics": ["orders"]}, {"groups": []}])
def test_either_groups_or_topics(copied: RestFixture, body: dict[str, list[str]]) -> None:
    assert copied.client.post("/failover", json=body).status_code == 400


@pytest.mark.parametrize(
    ("query", "there"),
    [
        ("offset=30", {"sourceOffset": 30, "targetOffset": BASE + 30}),
        (f"offset={BASE + 30}&to=source", {"sourceOffset": 30, "targetOffset": BASE + 30}),
    ],
)
def test_offsets_are_translated_both_ways(
    copied: RestFixture, query: str, there: dict[str, int]
) -> None:
    shown = copied.client.get(f"/offsets/translate?topic=orders&partition=1&{query}").get_json()
    assert shown.items() >= there.items()


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("topic=orders&partition=0&offset=101", 400, "not copied yet: the position is 100"),
        ("topic=orders&partition=0&offset=1101&to=source", 400, "beyond the end"),
        ("topic=orders&partition=0&offset=3", 409, "no segment for this offset"),
        ("topic=unknown&partition=0&offset=3", 404, "not whitelisted"),
        ("topic=orders&partition=9&offset=3", 400, "has no partition 9"),
        ("topic=orders&partition=0", 400, "offset"),
    ],
)
def test_offsets_that_cannot_be_translated(
    copied: RestFixture, query: str, status: int, text: str
) -> None:
    copied.copied.first = 10
    response = copied.client.get(f"/offsets/translate?{query}")
    assert response.status_code == status
    assert text in response.get_json()["detail"]


def test_a_cluster_that_is_away_is_said(copied: RestFixture) -> None:
    copied.groups.lost = True
    response = copied.client.post("/failover", json={"groups": ["billing"]})
    assert (response.status_code, copied.groups_there.commits) == (503, [])


def test_a_group_goes_back_to_the_source(copied: RestFixture) -> None:
    """Records that others produced at the target are not at the source: it goes on behind the copy."""
    copied.logs["source"].hold("orders", 0, 0, 150)
    copied.logs["source"].hold("orders", 1, 0, 150)
    copied.groups_there.add("billing", {FIRST: BASE + 70, SECOND: BASE + COPIED})
    body = {"groups": ["billing"]}
    planned = copied.client.post("/failover?back=true&dry_run=true", json=body).get_json()
    assert (planned["back"], copied.groups.commits) == (True, [])
    (group,) = planned["groups"]
    first, second = group["partitions"]
    assert (first["sourceOffset"], first["translated"], first["targetOffset"]) == (
        30,
        70,
        BASE + 70,
    )
    assert [partition["readAgain"] for partition in (first, second)] == [0, 0]


def test_the_way_back_has_the_rules_of_the_way_there(copied: RestFixture) -> None:
    for number in (0, 1):
        copied.logs["source"].hold("orders", number, 35, 150)
    copied.groups.add("billing", {FIRST: 30, SECOND: 90})
    copied.groups_there.add("billing", {FIRST: BASE + 7, SECOND: BASE + 60})
    copied.groups.add("used", {FIRST: 30}, state="Stable")
    copied.groups_there.add("used", {FIRST: BASE + 40})
    done = copied.client.post("/failover?back=true", json={"topics": ["orders"]}).get_json()
    billing, used = done["groups"]
    assert [partition["state"] for partition in billing["partitions"]] == [
        "synced",
        "ahead on the source",
    ]
    assert copied.groups.commits == [("billing", FIRST, 35)]
    assert used["state"] == "active on the source"
    unknown = copied.client.post("/failover?back=true", json={"groups": ["nobody"]})
    assert unknown.status_code == 404
    assert "target has no group 'nobody'" in unknown.get_data(as_text=True)


def test_nothing_goes_back_where_the_log_of_the_source_is_not_known(copied: RestFixture) -> None:
    copied.groups.add("billing", {FIRST: 30})
    copied.groups_there.add("billing", {FIRST: BASE + 70})
    done = copied.client.post("/failover?back=true", json={"groups": ["billing"]}).get_json()
    assert [group["state"] for group in done["groups"]] == ["unknown"]
    assert copied.groups.commits == []


@pytest.fixture
def deleting(new_rest: NewRest) -> RestFixture:
    """A route that deletes the offsets of groups that are gone."""
    policy = {
        "enabled": True,
        "on_source_deletion": "delete",
        "source_deletion_grace_s": 60,
        "groups": {"exclude": ["other"]},
    }
    rest = new_rest(({**ONE_ROUTE[0], "offset_map": True, "sync_group_offsets": policy},))
    rest.publish(RouteSettings())
    rest.put_intent("orders", TopicIntent(2, 2, target_topic="orders"))
    return rest


def note_gone(rest: RestFixture, *ids: str) -> None:
    groups = {id: GoneGroup(since_ms=10_000, offsets="x") for id in ids}
    rest.put(rest.paths.gone_groups(ROUTE), encode_gone(GoneGroups(groups)))


GONE = {
    "group": "billing",
    "route": "source.target",
    "state": "gone at the source",
    "reason": "its offsets at the target are deleted at 1970-01-01T00:01:10Z, unless it is used there",
}


def test_a_group_that_is_gone_is_shown_with_the_time_of_its_deletion(deleting: RestFixture) -> None:
    note_gone(deleting, "billing")
    listed = deleting.client.get("/groups").get_json()["groups"]
    assert listed == [{**GONE, "partitions": 0}]
    shown = deleting.client.get("/groups/billing").get_json()
    assert {**shown, "sync": None} == {**GONE, "partitions": [], "sync": None}
    assert deleting.client.post("/failover", json={"groups": ["billing"]}).status_code == 404


def test_a_group_that_is_back_at_the_source_is_shown_as_any_other(deleting: RestFixture) -> None:
    note_gone(deleting, "billing")
    deleting.groups.add("billing", {FIRST: 30})
    (listed,) = deleting.client.get("/groups").get_json()["groups"]
    assert listed["state"] == "pending"
    assert deleting.client.get("/groups/billing").get_json()["state"] == "pending"


def test_a_note_that_cannot_be_read_hides_no_group(deleting: RestFixture) -> None:
    deleting.put(deleting.paths.gone_groups(ROUTE), b"{")
    deleting.groups.add("billing", {FIRST: 30})
    assert len(deleting.client.get("/groups").get_json()["groups"]) == 1
    assert deleting.client.get("/groups/lost").status_code == 404


def test_notes_of_a_route_that_keeps_offsets_are_not_shown(copied: RestFixture) -> None:
    note_gone(copied, "lost")
    assert copied.client.get("/groups/lost").status_code == 404
