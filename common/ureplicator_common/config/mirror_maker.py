"""Options of MirrorMaker, as KIP-3, KIP-656 and the tools that were shipped spell them.

A route takes them in place of its own settings, so that the options of a MirrorMaker process can be
taken over. Where the KIP and the tool differ, both spellings count:

    abort.on.send.failure, abort.on.send.fail    abort_on_send_failure
    message.handler, message.handler.args        the one entry of handlers, for all topics
    transaction.producer                         delivery

A rebalance listener has no counterpart of its own: the hooks of a handler are called at those moments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ureplicator_common.config.section import Fault, Faults
from ureplicator_common.model import Delivery

_ABORT = ("abort.on.send.failure", "abort.on.send.fail")
_HANDLER, _ARGS = "message.handler", "message.handler.args"
_TRANSACTIONS = "transaction.producer"
_LISTENERS = tuple(
    f"{prefix}rebalance.listener{suffix}"
    for prefix in ("", "consumer.")
    for suffix in ("", ".args")
)
_HOOKS = "on_assign and on_release of a handler take its place: see docs/handlers.md"


def translated(route: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a route without MirrorMaker's spellings. Raises Faults."""
    settings = dict(route)
    faults = [Fault(name, _HOOKS) for name in _LISTENERS if settings.pop(name, None) is not None]
    for name, setting, value in _found(settings, faults):
        if setting in settings:
            faults.append(Fault(name, f"{setting} is given, too"))
        settings[setting] = value
    if faults:
        raise Faults(faults)
    return settings


def _found(settings: dict[str, Any], faults: list[Fault]) -> list[tuple[str, str, Any]]:
    """Option, setting in its place, and value; the options are taken out."""
    found = [
        (name, "abort_on_send_failure", settings.pop(name)) for name in _ABORT if name in settings
    ]
    if _TRANSACTIONS in settings:
        found.append((_TRANSACTIONS, "delivery", _delivery(settings.pop(_TRANSACTIONS), faults)))
    args = settings.pop(_ARGS, None)
    if _HANDLER in settings:
        found.append((_HANDLER, "handlers", [_handler(settings.pop(_HANDLER), args)]))
    elif args is not None:
        faults.append(Fault(_ARGS, f"needs {_HANDLER}"))
    return found


def _delivery(transactional: object, faults: list[Fault]) -> str:
    if not isinstance(transactional, bool):
        faults.append(Fault(_TRANSACTIONS, f"expected true or false, not {transactional!r}"))
    return (Delivery.EXACTLY_ONCE if transactional is True else Delivery.AT_LEAST_ONCE).value


def _handler(factory: object, args: object) -> dict[str, Any]:
    """KIP-3 hands all arguments over as one text; a mapping holds them by name."""
    handler = {"topics": ".*", "handler": factory}
    if args is None:
        return handler
    return {**handler, "args": args if isinstance(args, Mapping) else {"args": args}}
