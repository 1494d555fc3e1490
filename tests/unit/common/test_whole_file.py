"""Files that appear when they are complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from ureplicator_common.whole_file import whole_file


def test_the_file_appears_at_the_end_and_alone(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    with whole_file(path) as file:
        file.write(b"whole")
        assert not path.exists()

    assert path.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [path]


def test_a_former_file_stays_where_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(b"former")

    with pytest.raises(TypeError, match="bytes-like"), whole_file(path) as file:
        file.writelines([b"half", "no bytes"])  # type: ignore[list-item]

    assert path.read_bytes() == b"former"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_under_its_name_is_replaced_and_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"not yours")
    path = tmp_path / "result.json"
    path.symlink_to(victim)

    with whole_file(path, mode=0o600) as file:
        file.write(b"mine")

    assert victim.read_bytes() == b"not yours"
    assert not path.is_symlink()
    assert path.read_bytes() == b"mine"
    assert path.stat().st_mode & 0o777 == 0o600
