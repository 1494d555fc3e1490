"""Versions and files that differ in a fleet: expected during a rolling change; later one was forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ureplicator_common.printable import listed

MAX_NAMES = 5


def version_conditions(controllers: Mapping[str, str], workers: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each role whose processes run different versions. `controllers`, `workers`: id ->
    version; "" is not known."""
    for role, versions in (("controllers", controllers), ("workers", workers)):
        by_version = _ids_by({id: known or "an unknown version" for id, known in versions.items()})
        if len(by_version) > 1:
            shown = ", ".join(
                f"{version} ({listed(ids, MAX_NAMES)})"
                for version, ids in sorted(by_version.items())
            )
            yield f"{role} run different versions: {shown}"


def file_conditions(digests: Mapping[str, str]) -> Iterator[str]:
    """A sentence if controllers have different routes in their files. `digests`: id -> digest of the routes;
    "" is not known."""
    by_digest = _ids_by({id: digest for id, digest in digests.items() if digest})
    if len(by_digest) > 1:
        shown = " / ".join(listed(ids, MAX_NAMES) for ids in sorted(by_digest.values()))
        yield f"controllers have different routes in their files, those of the leader count: {shown}"


def _ids_by(values: Mapping[str, str]) -> dict[str, list[str]]:
    """Ids by value, in order."""
    found: dict[str, list[str]] = {}
    for id, value in sorted(values.items()):
        found.setdefault(value, []).append(id)
    return found
