"""Contents of the nodes of audits (`ureplicator_common.audits`)."""

from __future__ import annotations

from pydantic import TypeAdapter

from ureplicator_common.audits import (
    Follower,
    LiveAuditor,
    RequestedAudit,
    RunningAudit,
    TopicAudit,
)
from ureplicator_common.znodes.codec import Codec

_audit_state = Codec(TypeAdapter(TopicAudit), omit_defaults=True)
_audit_request = Codec(TypeAdapter(RequestedAudit))
_audit_claim = Codec(TypeAdapter(RunningAudit))
_follower = Codec(TypeAdapter(Follower))
_auditor = Codec(TypeAdapter(LiveAuditor))

encode_audit_state, decode_audit_state = _audit_state.encode, _audit_state.decode
encode_audit_request, decode_audit_request = _audit_request.encode, _audit_request.decode
encode_audit_claim, decode_audit_claim = _audit_claim.encode, _audit_claim.decode
encode_follower, decode_follower = _follower.encode, _follower.decode
encode_auditor, decode_auditor = _auditor.encode, _auditor.decode
