"""Several fleets as they were read: a row for each, and what they should not share. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ureplicator_cli.fleets.overlaps import Copy, copies, loops, shared_targets
from ureplicator_cli.fleets.reading import Reading

HEADS = ("fleet", "leader", "workers", "topics", "online", "offline", "error", "mismatches")
_COUNTS = (
    "numTopics",
    "numOnlineTopicPartitions",
    "numOfflineTopicPartitions",
    "numErrorTopicPartitions",
)


@dataclass(frozen=True, slots=True)
class Survey:
    """`shared`: copies of several fleets to one target topic; `circles`: copies that bring records back."""

    readings: Sequence[Reading]
    shared: Sequence[tuple[Copy, ...]]
    circles: Sequence[tuple[Copy, ...]]

    @property
    def findings(self) -> list[str]:
        """Fleets that did not respond, and what fleets share and should not."""
        return list(self._findings())

    @property
    def conditions(self) -> list[str]:
        return [
            f"{reading.name}: {condition}"
            for reading in self.readings
            for condition in reading.responses.get("/validation", {}).get("conditions", ())
        ]

    def _findings(self) -> Iterator[str]:
        for reading in self.readings:
            if reading.failure:
                yield f"{reading.url}: {reading.failure}"
        for sharing in self.shared:
            writers = " and ".join(str(copy) for copy in sharing)
            yield f"one target topic, {sharing[0].target_topic}, is written by {writers}"
        for circle in self.circles:
            yield f"records go in a circle: {' -> '.join(str(copy) for copy in circle)}"

    def as_json(self) -> dict[str, Any]:
        return {
            "fleets": [_fleet_json(reading) for reading in self.readings],
            "sharedTargets": [[asdict(copy) for copy in sharing] for sharing in self.shared],
            "loops": [[asdict(copy) for copy in circle] for circle in self.circles],
        }


def survey(readings: Sequence[Reading]) -> Survey:
    found = [
        copy
        for reading in readings
        if reading.responses
        for copy in copies(reading.responses["/export"])
    ]
    return Survey(readings, shared_targets(found), loops(found))


def row(reading: Reading) -> tuple[Any, ...]:
    """Cells below `HEADS`."""
    if reading.failure:
        return reading.url, "no response", *[""] * (len(HEADS) - 2)
    ready, counts = reading.responses["/ready"], reading.responses["/validation"]
    return (
        reading.name,
        ready["leader"] or "none",
        len(counts["IdealState"]),
        *(counts[name] for name in _COUNTS),
        len(counts["mismatches"]),
    )


def _fleet_json(reading: Reading) -> dict[str, Any]:
    if reading.failure:
        return {"url": reading.url, "fleet": "", "failure": reading.failure}
    counts = reading.responses["/validation"]
    return {
        "url": reading.url,
        "fleet": reading.name,
        "failure": "",
        "leader": reading.responses["/ready"]["leader"],
        **{name: counts[name] for name in (*_COUNTS, "conditions")},
        "numMismatches": len(counts["mismatches"]),
    }
