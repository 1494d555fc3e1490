"""Contents of the nodes of the fleet as a whole: controllers, switches, history, what is left alone."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import TypeAdapter

from ureplicator_common.znode_contents import IsolatedSubject, LiveController, PastEvent, Switches
from ureplicator_common.znodes.codec import Codec, field_names

_switches = Codec(TypeAdapter(Switches), checked=field_names(Switches))
_history = Codec(TypeAdapter(tuple[PastEvent, ...]), omit_defaults=True, empty=b"[]")
_isolated = Codec(TypeAdapter(tuple[IsolatedSubject, ...]), empty=b"[]")
_controller = Codec(TypeAdapter(LiveController), checked=field_names(LiveController))

encode_switches, decode_switches = _switches.encode, _switches.decode
encode_controller, decode_controller = _controller.encode, _controller.decode
decode_isolated = _isolated.decode
decode_history = _history.decode


def encode_history(events: Sequence[PastEvent]) -> bytes:
    return _history.encode(tuple(events))


def encode_isolated(subjects: Sequence[IsolatedSubject]) -> bytes:
    return _isolated.encode(tuple(subjects))
