"""Hints of REST, as commands.

REST gives its hints in terms of HTTP, since it does not know its client. For the command line those in
this table are replaced; all other hints fit both. A test compares the table with the hints in REST's code.
"""

from __future__ import annotations

from collections.abc import Mapping

HINTS: Mapping[str, str] = {
    "use PUT to expand it": "use ureplicator topics expand",
    "GET /topics lists whitelisted topics; POST /topics adds one": (
        "ureplicator topics lists whitelisted topics; ureplicator topics add adds one"
    ),
    "GET /blacklist lists what is blacklisted": "ureplicator blacklist lists what is blacklisted",
    "GET /instances lists them": "ureplicator instances lists the workers",
    "choose one with ?src=SOURCE&dst=TARGET": "choose one with --src SOURCE --dst TARGET",
    'to copy the present topic from its first record, send {"restart": true}': (
        "ureplicator topics resume --restart copies the present topic from its first record"
    ),
    "wait until GET returns 404, then add it again": (
        "wait until ureplicator topics no longer lists it, then add it again"
    ),
    "wait for its end, or cancel it with DELETE": (
        "wait for its end, or cancel it with ureplicator audits cancel"
    ),
    "GET /positions shows positions and logs": (
        "ureplicator positions show shows positions and logs"
    ),
    "GET /groups lists the groups of a route": "ureplicator groups lists the groups of a route",
    "GET /audits lists requests": "ureplicator audits lists requests",
    "GET /cutovers names it; ureplicator cutover back moves them back": (
        "ureplicator cutover list names it; ureplicator cutover back moves them back"
    ),
    "GET /cutovers lists them": "ureplicator cutover list lists them",
    "GET /cutovers tells its state": "ureplicator cutover status tells its state",
    "POST /cutovers/{name}/back moves clients back": "ureplicator cutover back moves clients back",
    "see GET /claims": "see ureplicator claims",
    "stop it there, or rename the target here; if that fleet is gone, DELETE /claims/{topic}": (
        "stop it there, or rename the target here; if that fleet is gone, ureplicator claims withdraw"
    ),
    "check with GET whether it was applied, then repeat the request": (
        "check whether it was applied, then repeat the command"
    ),
}
_FIELDS: Mapping[str, str] = {
    "opt": "",
    "restart": "",
    "src": "--src: ",
    "dst": "--dst: ",
    "numPartitions": "partitions: ",
    "bytesPerSecond": "rate: ",
    "from": "--from: ",
    "to": "--to: ",
    "name": "",
    "fenceCommand": "--fence-command: ",
    "principal": "--principal: ",
}
"""Fields of requests that have another name, or none, on the command line."""


def in_commands(text: str) -> str:
    """The text of a failure of REST, for a user of the command line."""
    for rest_hint, command_hint in HINTS.items():
        text = text.replace(f"({rest_hint})", f"({command_hint})")
    field, colon, rest = text.partition(": ")
    return f"{_FIELDS[field]}{rest}" if colon and field in _FIELDS else text
