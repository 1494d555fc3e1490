"""Metadata of positions: short, read back as written, and in its former form."""

import json
import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.kafka.provenance import DataProducer, Provenance, SameOffsets
from ureplicator_testkit.json_values import json_values

TEXT = st.text(max_size=20)
TOPIC_ID = TEXT | st.uuids().map(str)


@given(
    st.builds(
        Provenance,
        source_cluster=TEXT,
        source_topic=TOPIC_ID,
        target_topic=TOPIC_ID,
        worker=TEXT,
        slot=st.integers(0, 100),
        owner_epoch=st.integers(0, 2**62),
        target_end=st.integers(-1, 2**62),
        mapped=st.integers(-1, 2**62),
        map_chunks=st.integers(0, 2**31),
        markers=st.integers(0, 1),
    )
)
def test_round_trip(provenance: Provenance) -> None:
    assert Provenance.decode(provenance.encode()) == provenance
    assert Provenance.decode(provenance.encode() + "  ") == provenance


WRITTEN = Provenance(
    source_cluster="x9KQ0gXLQBCZkvuVpW5y3g",
    source_topic=str(uuid.UUID(int=2**127)),
    target_topic=str(uuid.UUID(int=2**126)),
    worker="worker-12",
    slot=3,
    owner_epoch=1_048_577,
    target_end=9_876_543_210,
)


def test_it_is_short() -> None:
    assert len(WRITTEN.encode()) < 130


def test_the_former_form_is_read() -> None:
    former = {
        "source_cluster": WRITTEN.source_cluster,
        "source_topic": WRITTEN.source_topic,
        "target_topic": WRITTEN.target_topic,
        "worker": WRITTEN.worker,
        "slot": WRITTEN.slot,
        "owner_epoch": WRITTEN.owner_epoch,
    }
    found = Provenance.decode(json.dumps(former))
    assert found is not None
    assert (found.source_topic, found.owner_epoch) == (WRITTEN.source_topic, WRITTEN.owner_epoch)
    assert found.target_end == -1


@pytest.mark.parametrize("appends", [None, DataProducer("w.0.run", 7, 0, 5)])
def test_equal_offsets(appends: DataProducer | None) -> None:
    same = SameOffsets(since=2_000_000_000, shift=1, why="a fence", filling=7)
    written = replace(WRITTEN, appends=appends, same=same)
    assert Provenance.decode(written.encode()) == written


def test_a_field_of_a_later_version_is_ignored() -> None:
    written = replace(WRITTEN, appends=DataProducer("w.0.run", 7, 0, 5), same=SameOffsets(since=3))
    later = [*json.loads(written.encode()), "more"]
    assert Provenance.decode(json.dumps(later)) == written


@pytest.mark.parametrize(
    "text",
    ["", "x", "{}", "[]", "3", "null", '"abcdefgh"', "[2,1,2,3,4,5,6,7]", '{"worker":"w"}'],
)
def test_metadata_of_others_is_no_provenance(text: str) -> None:
    assert Provenance.decode(text) is None


@given(st.text() | json_values().map(json.dumps))
def test_no_text_is_more_than_the_metadata_of_another(text: str) -> None:
    found = Provenance.decode(text)
    assert found is None or isinstance(found, Provenance)


def test_fields_of_a_later_version_are_passed_over_also_in_a_producer() -> None:
    """A position that is not understood is taken for one set by hand, behind which nothing is counted."""
    written = replace(WRITTEN, appends=DataProducer("w.0.run", 7, 0, 5), same=SameOffsets(since=3))
    fields = json.loads(written.encode())
    fields[-1].append("later")
    fields[-2].append("later")
    assert Provenance.decode(json.dumps([*fields, "later"])) == written
