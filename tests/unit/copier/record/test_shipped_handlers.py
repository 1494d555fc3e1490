"""The handlers that are shipped."""

import json
from typing import Any

import pytest

from ureplicator_worker.handlers import Record, filters, mask, rename


def record(**changes: Any) -> Record:
    return Record("orders-v1", 0, 5, 1_000, b"k", b"v", ())._replace(**changes)


@pytest.mark.parametrize(
    ("key", "kept"), [(b"eu-1", True), (b"eu-\n1", True), (b"us-1", False), (None, False)]
)
def test_filter_by_key(key: bytes | None, kept: bool) -> None:
    for drop in (False, True):
        handler = filters.by_key("eu-.*", drop=drop)
        each = record(key=key)
        assert list(handler.handle(each)) == ([each] if kept is not drop else [])


@pytest.mark.parametrize(
    ("headers", "kept"),
    [((("env", b"prod"),), True), ((("env", b"production"),), False), ((), False)],
)
def test_filter_by_header(headers: tuple[tuple[str, bytes]], kept: bool) -> None:
    each = record(headers=headers)
    assert bool(list(filters.by_header("env", "prod").handle(each))) is kept
    assert bool(list(filters.by_header("env").handle(each))) is bool(headers)


def test_rename_by_pattern() -> None:
    handler = rename.topics("(.*)-v(\\d)", "\\2.\\1")
    (renamed,) = handler.handle(record())
    assert renamed.topic == "1.orders"
    other = record(topic="orders")
    assert list(handler.handle(other)) == [other]
    longer = record(topic="orders-v1-old")
    assert list(handler.handle(longer)) == [longer], "only a part of the name matches"


def test_mask_of_fields() -> None:
    handler = mask.json_fields(["card", "customer.email", "items.price"], mask=None)
    value = {"card": "4", "customer": {"email": "a@b", "id": 1}, "items": [{"price": 1}, {}]}
    (masked,) = handler.handle(record(value=json.dumps(value).encode()))
    assert json.loads(masked.value or b"") == {
        "card": None,
        "customer": {"email": None, "id": 1},
        "items": [{"price": None}, {}],
    }
    for untouched in (record(value=None), record(value=b'{"a":1}'), record(value=b"[1]")):
        assert list(handler.handle(untouched)) == [untouched]
    with pytest.raises(ValueError, match="Expecting value"):
        list(handler.handle(record(value=b"no json")))
