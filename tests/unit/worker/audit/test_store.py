"""A file that is not the result of an audit is named in the user's terms."""

from __future__ import annotations

from pathlib import Path

import pytest

from ureplicator_common.errors import PermanentError
from ureplicator_worker.audit import store


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"hello", "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (b"[]", "its fields differ"),
        (b'{"a": 1}', "its fields differ"),
        (
            b'{"route": "a.b", "topic": "t", "targetTopic": "t", "delivery": "x"}',
            "its fields differ",
        ),
    ],
)
def test_a_file_of_another_kind(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(content)
    with pytest.raises(PermanentError) as refused:
        store.load(tmp_path)
    assert str(refused.value) == f"{path} is not the result of an audit: {reason}"


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.touch()
    with pytest.raises(PermanentError) as refused:
        store.load(folder)
    assert str(refused.value) == f"{folder / 'result.json'}: Not a directory"
