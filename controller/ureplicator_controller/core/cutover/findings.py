"""Findings on a plan: what could go wrong, before anything is touched. Pure.

Each check is a function of the facts; one more check is one more line of `CHECKS`. Where nothing is the
matter, a check says so. Topics of which the same is found are one finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ureplicator_controller.core.cutover.checks import (
    copies,
    groups,
    proofs,
    rights,
    routes,
    writers,
)
from ureplicator_controller.core.cutover.facts import Facts, Level, PlanFinding
from ureplicator_controller.core.cutover.plan import listed

CHECKS: Sequence[Callable[[Facts], Iterable[PlanFinding]]] = (
    copies.topics,
    routes.routes,
    routes.way_back,
    routes.names,
    routes.lanes,
    routes.other_cutovers,
    copies.online,
    copies.partitions,
    copies.lag,
    copies.settings,
    proofs.audits,
    proofs.gaps,
    proofs.offsets,
    groups.maps,
    groups.groups,
    groups.members,
    groups.others,
    rights.rights,
    writers.transactions,
    writers.producers,
    routes.fence,
)


def findings(facts: Facts) -> tuple[PlanFinding, ...]:
    """All findings, in the order of the checks."""
    return tuple(finding for check in CHECKS for finding in merged(check(facts)))


def merged(found: Iterable[PlanFinding]) -> list[PlanFinding]:
    """The findings, each that differs in its subject alone only once."""
    subjects: dict[PlanFinding, list[str]] = {}
    for finding in found:
        subjects.setdefault(replace(finding, subject=""), []).append(finding.subject)
    return [replace(finding, subject=listed(names)) for finding, names in subjects.items()]


def blocking(found: Iterable[PlanFinding]) -> list[PlanFinding]:
    return [finding for finding in found if finding.level is Level.BLOCKS]
