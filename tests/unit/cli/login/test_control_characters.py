"""Names and reasons with control characters, on the terminal of an operator."""

from __future__ import annotations

import pytest

from ureplicator_cli.output import confirm, fail, print_table

NAME = "a\x1b[2Jb"


def test_they_are_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(NAME, ("name",), [(NAME,)])
    confirm({"topic": NAME}, False, "{topic} is copied")
    with pytest.raises(SystemExit):
        fail(NAME)
    shown = "".join(capsys.readouterr())
    assert "\x1b[2J" not in shown
    assert shown.count("a\\x1b[2Jb") == 4
