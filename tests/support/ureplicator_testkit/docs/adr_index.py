"""The index of `docs/adr`, generated from the titles of the records."""

from __future__ import annotations

import re

from ureplicator_testkit.docs.pages import DOCS

ADR = DOCS / "adr"


TITLE = re.compile(r"# (?:ADR )?0*(\d+)[.:] (.+)")


def table() -> str:
    """One row for each record, in order. Raises ValueError for a record without a title."""
    rows = ["| | decision |", "|---|---|"]
    for path in sorted(ADR.glob("[0-9]*.md")):
        title = path.read_text().partition("\n")[0]
        found = TITLE.fullmatch(title)
        if found is None or int(found[1]) != int(path.name[:4]):
            raise ValueError(f"{path}: the title must be '# NUMBER. TITLE', not {title!r}")
        rows.append(f"| {found[1]} | [{found[2][0].upper()}{found[2][1:]}]({path.name}) |")
    return "\n".join(rows)
