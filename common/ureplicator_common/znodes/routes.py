"""Contents of the nodes of routes: settings, what the leader remembers of them, reports of their syncs."""

from __future__ import annotations

from dataclasses import replace

from pydantic import TypeAdapter

from ureplicator_common.model import RouteSettings
from ureplicator_common.znode_contents import GoneGroups, RouteAcls, RouteMemory, SyncReport
from ureplicator_common.znodes.codec import Codec, field_names

_memory = Codec(TypeAdapter(RouteMemory))
_acls = Codec(TypeAdapter(RouteAcls))
_gone = Codec(TypeAdapter(GoneGroups))
_sync = Codec(TypeAdapter(SyncReport))
_route = Codec(
    TypeAdapter(RouteSettings),
    checked=field_names(RouteSettings, required=("delivery", "onGap")),
)

encode_memory, decode_memory = _memory.encode, _memory.decode
encode_acls, decode_acls = _acls.encode, _acls.decode
encode_gone, decode_gone = _gone.encode, _gone.decode
encode_sync, decode_sync = _sync.encode, _sync.decode
decode_route = _route.decode


def encode_route(settings: RouteSettings) -> bytes:
    return _route.encode(replace(settings, rename=dict(sorted(settings.rename.items()))))
