"""A wrong wall clock for Python processes, by an offset read from a file.

Python imports a module of this name at its start from the first folder that has one, so this folder on
PYTHONPATH does it, for all Python processes of a tree. Monotonic time stays as it is.

libfaketime would do it for every program, but its 0.9.10 cannot leave monotonic time alone for a
Python from 3.11 on: `time.sleep` then fails with EINVAL. So Spark's JVM keeps the true time.
"""

import datetime
import os
import time
from pathlib import Path
from typing import Self

VARIABLE = "UREPLICATOR_TESTKIT_CLOCK"

_true_time, _true_time_ns = time.time, time.time_ns
_file = Path(os.environ[VARIABLE])


def skew_s() -> int:
    return int(_file.read_text() or 0)


def skewed_time() -> float:
    return _true_time() + skew_s()


def skewed_time_ns() -> int:
    return _true_time_ns() + skew_s() * 1_000_000_000


class SkewedDatetime(datetime.datetime):
    """`datetime` reads a clock of its own, not `time.time`."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Self:
        return cls.fromtimestamp(skewed_time(), tz)


time.time, time.time_ns = skewed_time, skewed_time_ns
datetime.datetime = SkewedDatetime  # type: ignore[misc]
