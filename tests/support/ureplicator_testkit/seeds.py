"""Number of seeds of each kind of random history that a run of the tests plays."""

from __future__ import annotations

import os

DEFAULT = 400
VARIABLE = "UREPLICATOR_SEEDS"


def seeds() -> int:
    """Set by `scripts/test`: few for each change, thousands with `--long`."""
    return int(os.environ.get(VARIABLE, DEFAULT))
