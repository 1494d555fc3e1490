"""`scripts/release` refuses what would not be one version of one commit, before it builds anything."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
VERSION = "common/ureplicator_common/_version.py"
CHART = "deploy/helm/ureplicator/Chart.yaml"
STATED = ("scripts/release", VERSION, CHART)
SETUP = "#!/bin/sh\necho 'everything agrees'\nexit 7\n"
"""In place of the real one: reached only when nothing is refused."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of the files that state the version, all committed."""
    for name in STATED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / VERSION).write_text('__version__ = "0.1.0"\n')
    (tmp_path / CHART).write_text('name: u\nversion: 0.1.0\nappVersion: "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## 0.1.0 - 2026-01-31\n\n## 0.0.9 - 2025-12-01\n"
    )
    setup = tmp_path / "scripts/setup"
    setup.write_text(SETUP)
    setup.chmod(0o755)
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    names = ("-c", "user.name=tester", "-c", "user.email=tester@test.invalid")
    subprocess.run(["git", "-C", str(folder), *names, *arguments], check=True)  # noqa: S603, S607


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "-q", "--no-verify", "-m", "Change")


def change(folder: Path, name: str, old: str, new: str) -> None:
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new))


def release(folder: Path, *arguments: str) -> str:
    command = [str(folder / "scripts/release"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode in {1, 7}, done
    assert (done.returncode == 7) == (done.stdout == "everything agrees\n"), done
    return done.stdout + done.stderr


@pytest.mark.parametrize("heading", ["2026-01-31", "unreleased"])
def test_a_committed_version_that_all_places_state_is_built(checkout: Path, heading: str) -> None:
    if heading != "2026-01-31":
        change(checkout, "CHANGELOG.md", "2026-01-31", heading)
        commit(checkout)
    assert release(checkout) == "everything agrees\n"


@pytest.mark.parametrize("name", ["stray.py", VERSION])
def test_files_that_are_not_committed_are_refused(checkout: Path, name: str) -> None:
    with (checkout / name).open("a") as file:
        file.write("# more\n")
    assert "files differ from the last commit" in release(checkout)


@pytest.mark.parametrize(
    ("name", "old", "new", "place"),
    [
        (VERSION, "0.1.0", "0.2.0", f"version in {CHART} says '0.1.0'"),
        (CHART, "\nversion: 0.1.0", "\nversion: 0.1.1", f"version in {CHART} says '0.1.1'"),
        (CHART, '"0.1.0"', '"0.1.1"', f"appVersion in {CHART} says '0.1.1'"),
        ("CHANGELOG.md", "## 0.1.0", "## 0.1.1", "the newest heading of CHANGELOG.md says '0.1.1'"),
        (
            "CHANGELOG.md",
            "## 0.1.0 - 2026-01-31",
            "## 0.1.0",
            "'## 0.1.0': write '## 0.1.0 - DATE'",
        ),
    ],
)
def test_places_that_state_another_version_are_refused(
    checkout: Path, name: str, old: str, new: str, place: str
) -> None:
    change(checkout, name, old, new)
    commit(checkout)
    assert place in release(checkout)


def test_a_version_that_is_tagged_elsewhere_is_refused(checkout: Path) -> None:
    git(checkout, "tag", "v0.1.0")
    assert release(checkout) == "everything agrees\n"
    change(checkout, CHART, "name: u", "name: v")
    commit(checkout)
    assert "v0.1.0 is tagged already" in release(checkout)


def test_an_undated_version_is_not_tagged(checkout: Path) -> None:
    change(checkout, "CHANGELOG.md", "2026-01-31", "unreleased")
    commit(checkout)
    assert "give it a date" in release(checkout, "--tag")


def test_an_unknown_argument_is_refused(checkout: Path) -> None:
    assert "only --tag is known" in release(checkout, "--tags")


def test_the_places_of_this_checkout_agree(checkout: Path) -> None:
    for name in (VERSION, CHART, "CHANGELOG.md"):
        shutil.copy(ROOT / name, checkout / name)
    commit(checkout)
    assert release(checkout) == "everything agrees\n"
