"""Contents of the nodes of cutovers (`ureplicator_common.cutovers`)."""

from __future__ import annotations

import json

from pydantic import TypeAdapter

from ureplicator_common.cutovers import Cutover, CutoverPlan, CutoverRequest
from ureplicator_common.znodes.codec import Codec

_cutover = Codec(TypeAdapter(Cutover), omit_defaults=True)
_request = Codec(TypeAdapter(CutoverRequest), omit_defaults=True)

_plan = TypeAdapter(CutoverPlan)

encode_cutover, decode_cutover = _cutover.encode, _cutover.decode
encode_cutover_request, decode_cutover_request = _request.encode, _request.decode


def encode_plan(plan: CutoverPlan) -> bytes:
    """All of a plan as JSON, in one order: for programs, and for its digest."""
    return json.dumps(_plan.dump_python(plan, mode="json", by_alias=True), sort_keys=True).encode()
