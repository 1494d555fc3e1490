"""One line per event, for people or for machines."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from ureplicator_common.logging_setup import set_up, writes_json


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    logging.captureWarnings(False)


def test_a_line_has_time_level_logger_and_text() -> None:
    stream = io.StringIO()
    set_up(stream=stream)
    logging.getLogger("ureplicator.x").info("moved %s\nto %s", "a/1", "w2")
    line = stream.getvalue()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00 INFO ureplicator\.x: moved a/1 to w2\n", line
    )


def test_control_characters_do_not_reach_the_terminal() -> None:
    stream = io.StringIO()
    set_up(stream=stream)
    logging.getLogger("x").info("topic %s", "a\x1b]0;owned\x07\x9b31m\u202eb")
    assert stream.getvalue().endswith("topic a\\x1b]0;owned\\x07\\x9b31m\\u202eb\n")


def test_a_process_that_shares_a_stream_has_its_name_in_each_line() -> None:
    stream = io.StringIO()
    set_up(stream=stream, name="copier 0")
    logging.getLogger("ureplicator.x").warning("failed")
    assert re.fullmatch(r"\S+\+00:00 WARNING copier 0: failed\n", stream.getvalue())


def test_json_keeps_the_traceback_in_its_line() -> None:
    stream = io.StringIO()
    set_up(as_json=True, stream=stream)
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        logging.getLogger("x").exception("failed")
    (line,) = stream.getvalue().splitlines()
    event = json.loads(line)
    assert (event["level"], event["message"]) == ("ERROR", "failed")
    assert "RuntimeError: broken" in event["traceback"]


def test_libraries_say_only_what_matters() -> None:
    stream = io.StringIO()
    set_up(stream=stream)
    logging.getLogger("kazoo.client").info("chatter")
    logging.getLogger("kazoo.client").warning("dropped")
    assert "chatter" not in stream.getvalue()
    assert "dropped" in stream.getvalue()


def test_a_process_that_shares_a_stream_has_its_name_in_json_too() -> None:
    stream = io.StringIO()
    set_up(as_json=True, stream=stream, name="copier 0")
    assert writes_json()
    logging.getLogger("x").info("begun")
    event = json.loads(stream.getvalue())
    assert (event["process"], event["logger"], event["message"]) == ("copier 0", "x", "begun")
