"""REST's hints in the words of the command line.

REST says what would help in REST's words, for it does not know who asks. People at the command line get
the same in commands; what is not in the table serves both. A test sees that no hint is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping

HINTS: Mapping[str, str] = {
    "use PUT to give it more partitions": "ureplicator topics expand gives it more partitions",
    "GET /topics lists those that are; POST /topics adds one": (
        "ureplicator topics lists those that are; ureplicator topics add adds one"
    ),
    "GET /blacklist lists those that are": "ureplicator blacklist lists those that are",
    "GET /instances lists them": "ureplicator instances lists them",
    "choose one with ?src=SOURCE&dst=TARGET": "choose one with --src SOURCE --dst TARGET",
    'to copy what is there now, from its first record: {"restart": true}': (
        "ureplicator topics resume --restart copies what is there now, from its first record"
    ),
    "wait until GET says 404, then add it again": (
        "wait until ureplicator topics no longer lists it, then add it again"
    ),
    "look with GET, then try again": "look what is there, then try again",
}
_FIELDS: Mapping[str, str] = {
    "opt": "",
    "restart": "",
    "src": "--src: ",
    "dst": "--dst: ",
    "numPartitions": "partitions: ",
}
"""Fields of requests that people at the command line do not name so."""


def in_commands(text: str) -> str:
    """A failure as REST tells it, for those who typed a command."""
    for said, meant in HINTS.items():
        text = text.replace(f"({said})", f"({meant})")
    field, colon, rest = text.partition(": ")
    return f"{_FIELDS[field]}{rest}" if colon and field in _FIELDS else text
