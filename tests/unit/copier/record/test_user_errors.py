"""Exceptions of users' code: the place in the reason, and the stack in the log."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from ureplicator_testkit.copier.sample_handlers import fails
from ureplicator_worker.copier.record.time_limit import TimeLimit
from ureplicator_worker.copier.record.user_errors import (
    MAX_MESSAGE,
    MAX_STACK,
    log_python_stack,
    log_stack,
    place_of,
    python_reason,
    reason_of,
)
from ureplicator_worker.handlers import Record

RECORD = Record("t", 1, 7, 0, None, b"poison")
OF_SPARK = """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/opt/app/shop/prices.py", line 12, in price
    return decoded(text)["price"]
           ~~~~~~~^^^^^^
  File "/opt/app/shop/texts.py", line 3, in decoded
    return orjson.loads(text)
  File "/opt/venv/lib/python3.11/site-packages/orjson/__init__.py", line 9, in loads
    return json.loads(text)
  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode
    raise JSONDecodeError("Expecting value", s, err.value) from None
json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(P.scala:5)
"""


def raised(call: Any) -> BaseException:
    try:
        call()
    except Exception as error:
        return error
    pytest.fail("nothing was raised")


def test_the_place_is_that_of_the_handler_below_our_calls() -> None:
    limit = TimeLimit(1.0, outputs=list)
    error = raised(lambda: limit.call(fails("raise", ".*").handle, RECORD))
    while error.__traceback__ and error.__traceback__.tb_frame.f_globals["__name__"] == __name__:
        error.__traceback__ = error.__traceback__.tb_next  # the copier calls it, not this test
    name, line = place_of(error).split(":")
    assert name == "sample_handlers.py"
    assert int(line) > 0
    assert reason_of(error) == f"ValueError: no such customer in {name}:{line}"


def test_the_place_is_in_the_users_package_and_not_in_a_library_that_it_calls() -> None:
    assert place_of(raised(lambda: json.loads("no JSON"))).startswith("test_user_errors.py:")


def test_an_error_of_ours_has_no_place() -> None:
    assert reason_of(ValueError("bad")) == "ValueError: bad"
    assert reason_of(MemoryError()) == "MemoryError"


def test_a_long_message_leaves_room_for_the_place() -> None:
    def fail() -> None:
        raise ValueError("x" * 10_000)

    reason = reason_of(raised(fail))
    assert " in test_user_errors.py:" in reason
    assert len(reason) < MAX_MESSAGE + 50


def test_a_function_of_spark_is_named_with_its_place() -> None:
    found = "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0) in texts.py:3"
    assert python_reason(OF_SPARK) == found
    assert python_reason("[DIVIDE_BY_ZERO] Division by zero.") == ""


def test_the_log_has_the_stack_and_no_values(caplog: pytest.LogCaptureFixture) -> None:
    def deeper(left: int) -> None:
        if left:
            calls[left % 2](left - 1)
        raise ValueError("bad")

    calls: list[Callable[[int], None]] = [deeper, lambda left: deeper(left)]

    with caplog.at_level(logging.ERROR):
        log_stack("t/1 at offset 7", raised(lambda: deeper(300)))
        log_python_stack("t/1 at offset 7", OF_SPARK)
        log_python_stack("t/1 at offset 7", "no stack")
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("t/1 at offset 7: ValueError: bad in test_user_errors.py:")
    assert first.rstrip().endswith('raise ValueError("bad")')
    assert len(first) < MAX_STACK + 200
    assert "prices.py" in second
    assert "texts.py" in second
