"""The tables of Spark properties in `docs/spark.md`, generated from what the worker sends."""

from __future__ import annotations

from ureplicator_common.config.spark import CLUSTER_DEFAULTS, DEFAULTS, PINS, REFUSED


def tables() -> str:
    """Pinned properties, those that are not set, and defaults."""
    pinned = [
        f"| `{pin.name}` | {pin.value.replace('{slots}', 'number of slots')} | {pin.on} | {pin.reason} |"
        for pin in PINS
    ]
    refused = [f"| `{name}` | {instead} |" for name, instead in REFUSED.items()]
    defaults = [f"| `{name}` | `{value}` | any |" for name, value in DEFAULTS.items()]
    defaults += [
        f"| `{name}` | `{value}` | `spark://`, `k8s://` |"
        for name, value in CLUSTER_DEFAULTS.items()
    ]
    return "\n".join(
        [
            *("| property | value | master | reason |", "|---|---|---|---|", *pinned, ""),
            *("Properties that are refused:", "", "| property | instead |", "|---|---|"),
            *(*refused, ""),
            *("Defaults, which may be changed:", "", "| property | value | master |"),
            *("|---|---|---|", *defaults),
        ]
    )
