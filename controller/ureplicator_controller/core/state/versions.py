"""Versions in a fleet that differ: expected during a rolling upgrade; later a process was forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ureplicator_common.printable import listed

MAX_NAMES = 5


def version_conditions(controllers: Mapping[str, str], workers: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each role whose processes run different versions. `controllers`, `workers`: id ->
    version; "" is not known."""
    for role, versions in (("controllers", controllers), ("workers", workers)):
        by_version: dict[str, list[str]] = {}
        for id, version in sorted(versions.items()):
            by_version.setdefault(version or "an unknown version", []).append(id)
        if len(by_version) > 1:
            shown = ", ".join(
                f"{version} ({listed(ids, MAX_NAMES)})"
                for version, ids in sorted(by_version.items())
            )
            yield f"{role} run different versions: {shown}"
