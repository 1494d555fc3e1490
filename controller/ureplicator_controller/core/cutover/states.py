"""States of a cutover, and the changes from one to the next.

                   +------- a write behind the fence --------+
                   v                                         |
    PLANNED --> FENCED --> DRAINED --> VERIFIED --> GROUPS --+--> OPEN --> WATCHED --> DONE
       |          |           |           |           |
       +----------+-----------+-----------+-----------+--> ABORTED

| state    | what holds from now on                                                            |
|----------|-----------------------------------------------------------------------------------|
| PLANNED  | nothing is changed, or the fence is being raised (`fencing`)                      |
| FENCED   | all brokers of the source hold the fence, then its ends were read                 |
| DRAINED  | the positions of the copy have reached these ends                                 |
| VERIFIED | the tail was compared, or it is said why not                                      |
| GROUPS   | the offsets of the groups are at the target                                       |
| OPEN     | the decision: the target is the place of these topics. Nothing goes back to before|
| WATCHED  | the reverse copy is ONLINE, from the ends that the target had at OPEN             |
| DONE     | nobody has written at the source for a while                                      |
| ABORTED  | rights and offsets are as they were; the source is the place of these topics      |

OPEN is one write of one node, so a leader that dies leaves the old state or the new one.
"""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_common.cutovers import CutoverState

PLANNED, FENCED, DRAINED = CutoverState.PLANNED, CutoverState.FENCED, CutoverState.DRAINED
VERIFIED, GROUPS, OPEN = CutoverState.VERIFIED, CutoverState.GROUPS, CutoverState.OPEN
WATCHED, DONE, ABORTED = CutoverState.WATCHED, CutoverState.DONE, CutoverState.ABORTED

NEXT: Mapping[CutoverState, frozenset[CutoverState]] = {
    PLANNED: frozenset({FENCED, ABORTED}),
    FENCED: frozenset({DRAINED, ABORTED}),
    DRAINED: frozenset({VERIFIED, FENCED, ABORTED}),
    VERIFIED: frozenset({GROUPS, FENCED, ABORTED}),
    GROUPS: frozenset({OPEN, FENCED, ABORTED}),
    OPEN: frozenset({WATCHED}),
    WATCHED: frozenset({DONE}),
    DONE: frozenset(),
    ABORTED: frozenset(),
}
BEFORE_OPEN = frozenset({PLANNED, FENCED, DRAINED, VERIFIED, GROUPS})
AT_REST = frozenset({DONE, ABORTED})
