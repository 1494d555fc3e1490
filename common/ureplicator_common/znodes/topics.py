"""Contents of the nodes of topics: what to copy, who claims the target, which worker is to own what."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import TypeAdapter

from ureplicator_common.model import Content, Route, TopicKey
from ureplicator_common.znode_contents import IdealEntry, IdealTopic, TopicIntent
from ureplicator_common.znodes.codec import Codec, UnreadableContent

MAX_TOPIC_PARTITIONS = 10_000
"""Partitions of a topic at most. Its ideal state takes 30 bytes per partition with one holder, about 5
more for each further holder: 64 are available."""


@dataclass(frozen=True, slots=True)
class _Claim(Content):
    topic: str


@dataclass(frozen=True, slots=True)
class _Blacklisted(Content):
    request_id: str = ""


_intent = Codec(TypeAdapter(TopicIntent))
_claim = Codec(TypeAdapter(_Claim))
_blacklisted = Codec(TypeAdapter(_Blacklisted))
_ideal = Codec(TypeAdapter(dict[int, IdealEntry]), omit_defaults=True)

encode_intent, decode_intent = _intent.encode, _intent.decode


def encode_claim(key: TopicKey) -> bytes:
    return _claim.encode(_Claim(str(key)))


def decode_claim(data: bytes) -> TopicKey:
    route, _, topic = _claim.decode(data).topic.partition("/")
    try:
        return TopicKey(Route.parse(route), topic)
    except ValueError as error:
        raise UnreadableContent(str(error)) from error


def encode_blacklisted(request_id: str) -> bytes:
    """The request id is for a writer that lost its response; readers only need the node."""
    return _blacklisted.encode(_Blacklisted(request_id))


def decode_blacklisted(data: bytes) -> str:
    return _blacklisted.decode(data).request_id


def encode_ideal(ideal: IdealTopic) -> bytes:
    return _ideal.encode(dict(sorted(ideal.entries.items())))


def decode_ideal(data: bytes) -> IdealTopic:
    return IdealTopic(_ideal.decode(data))
