"""Options under the names of Spark's Kafka source; what is not understood is refused by its name."""

import pytest

from ureplicator_common.errors import ConfigurationError
from ureplicator_common.kafka.client import EARLIEST, LATEST
from ureplicator_worker.kafka_batches.bounds import Bound
from ureplicator_worker.kafka_batches.options import Options, read_options

LEAST = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}


def read(**given: str) -> Options:
    return read_options(LEAST | given, streaming=False)


def test_defaults() -> None:
    batch, stream = read(), read_options(LEAST, streaming=True)
    assert batch.cluster == {"bootstrap.servers": "a:1"}
    assert (batch.topics, batch.assigned) == (("t",), ())
    assert (batch.start, batch.end, stream.start) == (
        Bound(EARLIEST),
        Bound(LATEST),
        Bound(LATEST),
    )
    assert (batch.fail_on_data_loss, batch.include_headers) == (True, False)
    assert batch.timeout_s == 120


def test_names_in_any_case() -> None:
    """Spark hands them over in lower case."""
    assert read(includeHeaders="TRUE").include_headers
    assert read(INCLUDEHEADERS="true").include_headers


def test_topics_and_partitions() -> None:
    assert read(subscribe="b, a,b").topics == ("b", "a")
    servers = {"kafka.bootstrap.servers": "a:1"}
    options = read_options({**servers, "assign": '{"t": [2, 0], "s": [1]}'}, streaming=False)
    assert options.assigned == (("s", 1), ("t", 0), ("t", 2))
    assert options.topics == ("s", "t")


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        ({"startingOffsets": "latest"}, Bound(LATEST)),
        ({"startingOffsets": " Earliest "}, Bound(EARLIEST)),
        (
            {"startingOffsets": '{"t": {"0": 5, "1": -2}}'},
            Bound(None, offsets={("t", 0): 5, ("t", 1): EARLIEST}),
        ),
        ({"startingTimestamp": "17"}, Bound(17)),
        ({"startingTimestamp": "17", "startingOffsets": "latest"}, Bound(17)),
        (
            {"startingOffsetsByTimestamp": '{"t": {"0": 9}}', "startingOffsets": "latest"},
            Bound(None, times_ms={("t", 0): 9}),
        ),
    ],
)
def test_the_beginning(given: dict[str, str], bound: Bound) -> None:
    assert read(**given).start == bound


@pytest.mark.parametrize(
    ("given", "streaming", "text"),
    [
        ({"subscribe": ","}, False, "subscribe names no topic"),
        ({"assign": '{"t": [0]}'}, False, "one of the options subscribe and assign"),
        ({"kafka.bootstrap.servers": ""}, False, r"kafka\.bootstrap\.servers is required"),
        (
            {"kafka.security.protocol": "SSH"},
            False,
            r"kafka\.security\.protocol: unknown value 'SSH'",
        ),
        ({"kafka.group.id": "g"}, False, r"kafka\.group\.id is not known"),
        ({"subscribePattern": "t.*"}, False, "subscribepattern is not known"),
        ({"endingOffsets": "earliest"}, False, "endingoffsets: 'earliest' is wrong"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, False, "endingoffsets.*below -1"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, False, "startingoffsets.*below -2"),
        ({"startingOffsets": "{}"}, False, "startingoffsets.*names no partition"),
        ({"startingOffsets": "[1]"}, False, "startingoffsets"),
        ({"startingTimestamp": "-5"}, False, "startingtimestamp"),
        ({"minPartitions": "0"}, False, "minpartitions.*not above 0"),
        ({"failOnDataLoss": "yes"}, False, "failondataloss.*neither true nor false"),
        ({"maxOffsetsPerTrigger": "5"}, False, "maxoffsetspertrigger is not for a batch"),
        ({"endingOffsets": "latest"}, True, "endingoffsets is not for a stream"),
    ],
)
def test_refused(given: dict[str, str], streaming: bool, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        read_options(LEAST | given, streaming=streaming)


def test_a_bound_names_all_partitions_and_no_others() -> None:
    bound = Bound(None, offsets={("t", 0): 5, ("t", 1): EARLIEST})
    assert bound.lookups([("t", 0), ("t", 1)]) == ({("t", 0): 5}, {("t", 1): EARLIEST})
    assert Bound(7).lookups([("t", 0)]) == ({}, {("t", 0): 7})
    with pytest.raises(ConfigurationError, match=r"these differ: t/1, t/2$"):
        bound.lookups([("t", 0), ("t", 2)])


def test_a_login_is_passed_on_and_not_shown() -> None:
    login = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "me",
        "kafka.sasl.password": "hunter2",
    }
    options = read_options(LEAST | login, streaming=False)
    assert options.cluster["sasl.password"] == "hunter2"
    assert "hunter2" not in repr(options)
