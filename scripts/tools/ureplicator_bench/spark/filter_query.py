"""The query of `--sql`: a filter over the value, which about half of the records pass. Pure.

Every record is decoded and evaluated, and no stored batch can be sent as it is. Records of the latency probe
pass too: they have no digit there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ureplicator_bench.load import Profile, values

QUERY = """
SELECT key, value, headers FROM records
WHERE substring(CAST(value AS STRING), 11, 1) NOT BETWEEN '0' AND '7'
"""
"""The first hexadecimal digit of a value of `load` is its character 11."""
ROUTE: Mapping[str, Any] = {"sql": [{"topics": ".*", "query": QUERY}]}


def passing(profile: Profile) -> int:
    """Number of records that pass, of a topic that a `Filler` filled at once."""
    passes = [not b"0" <= value[10:11] <= b"7" for value in values(profile.size)]
    times, rest = divmod(profile.records, len(passes))
    return times * sum(passes) + sum(passes[:rest])
