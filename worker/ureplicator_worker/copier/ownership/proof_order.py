"""Progress through the order of `kafka.positions`: which steps are done, for which partitions. Pure.

                    (1) initialised()              (3) (4) proven()
    UNINITIALISED ---------------------> INITIALISED ------------------> PROVEN --+ joining partitions
          ^                                   |                            |  ^---+ are proven alike
          |  restart(): fenced, refused, or the outcome of a commit unknown|
          +-----------------------------------+----------------------------+

Between (1) and (3) lies the proof of the driver (2): `request` and `response`. One request is
outstanding at a time. It names what waits to be started and, while nothing is proven, everything that is
held: after a restart all of it must be proven again before anything is committed.

What is proven and waits for the source is `searched`: under the number of its proof, so that results from
before a restart are recognised. A restart makes it wait again.

What is held was started with a position, and every position that we tried to commit since may be the
stored one (an outcome may be unknown). Any other stored position was committed by another owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from ureplicator_common.errors import InvalidTransition
from ureplicator_common.model import OwnerEpoch, Partition
from ureplicator_worker.lifeline.messages import ProofRequest, ProofResponse


class OrderState(StrEnum):
    UNINITIALISED = "UNINITIALISED"
    INITIALISED = "INITIALISED"
    PROVEN = "PROVEN"


class ProofOrder:
    """`waiting`: to be started; `searched`: start position requested at the source; `held`: begun. All
    with their owner epochs."""

    def __init__(self) -> None:
        self.state = OrderState.UNINITIALISED
        self.waiting: dict[Partition, OwnerEpoch] = {}
        self.searched: dict[Partition, tuple[OwnerEpoch, int]] = {}
        self.held: dict[Partition, OwnerEpoch] = {}
        self._attempted: dict[Partition, set[int]] = {}
        self._number = 0
        self._outstanding = False
        self._left_open = False
        self._requested: dict[Partition, OwnerEpoch] = {}

    @property
    def needs_proof(self) -> bool:
        """A proof is due, and no request is outstanding."""
        unproven = self.state is not OrderState.PROVEN and bool(self.held)
        return (bool(self.waiting) or unproven) and not self._outstanding

    @property
    def needs_initialising(self) -> bool:
        """The id is to be initialised, for a proof or to end what a commit has left open.

        An open transaction holds up readers and the next owner of a partition that was released meanwhile.
        """
        return self.needs_proof or (self._left_open and not self._outstanding)

    def add(self, partitions: Mapping[Partition, OwnerEpoch]) -> None:
        self.waiting.update(partitions)
        for partition in partitions:
            self.searched.pop(partition, None)

    def forget(self, partition: Partition) -> None:
        self.waiting.pop(partition, None)
        self.searched.pop(partition, None)
        self.held.pop(partition, None)
        self._attempted.pop(partition, None)

    def restart(self) -> None:
        """Nothing may be committed before the order was gone through again."""
        self.state = OrderState.UNINITIALISED
        self._left_open = True
        self.waiting |= {part: epoch for part, (epoch, _) in self.searched.items()}
        self.searched.clear()

    def initialised(self) -> None:
        if self.state is not OrderState.UNINITIALISED:
            raise InvalidTransition(f"initialised while {self.state}")
        self.state = OrderState.INITIALISED
        self._left_open = False

    def request(self) -> ProofRequest:
        """The next request for a proof."""
        if self.state is OrderState.UNINITIALISED or self._outstanding:
            raise InvalidTransition(f"proof requested while {self.state}")
        self._number += 1
        self._outstanding = True
        self._requested = dict(self.waiting)
        if self.state is not OrderState.PROVEN:
            self._requested |= self.held
        return ProofRequest(self._number, self._requested)

    def response(self, response: ProofResponse) -> ProofResponse | None:
        """The response without what was forgotten since the request, or added again; None if none is awaited
        to this request."""
        if not self._outstanding or response.request_id != self._number:
            return None
        self._outstanding = False
        granted = {
            part: grant for part, grant in response.granted.items() if self._is_requested(part)
        }
        refused = {part: why for part, why in response.refused.items() if self._is_requested(part)}
        return ProofResponse(response.request_id, granted, refused)

    def _is_requested(self, partition: Partition) -> bool:
        """True for what was not forgotten since, nor added again under another owner epoch."""
        epoch = self.waiting.get(partition, self.held.get(partition))
        return epoch is not None and epoch == self._requested.get(partition)

    def proven(self) -> None:
        """Former owners are fenced and positions are read: what is held may be committed."""
        if self.state is OrderState.UNINITIALISED:
            raise InvalidTransition("proven before the id was initialised")
        self.state = OrderState.PROVEN

    def search(self, partitions: Iterable[Partition]) -> int:
        """Proven now, and requested at the source; the number of the proof."""
        for partition in partitions:
            self.searched[partition] = (self.waiting.pop(partition), self._number)
        return self._number

    def is_searched(self, partition: Partition, number: int) -> bool:
        """True if the result still counts."""
        return self.searched.get(partition, (0, -1))[1] == number

    def search_again(self, number: int) -> None:
        """The source did not respond: what is still searched waits for the next proof."""
        for partition, (epoch, proof_number) in list(self.searched.items()):
            if proof_number == number:
                del self.searched[partition]
                self.waiting[partition] = epoch

    def begin(self, partition: Partition, position: int) -> None:
        self.held[partition] = self.searched.pop(partition)[0]
        self.attempt(partition, position)

    def attempt(self, partition: Partition, position: int) -> None:
        """The position may be the stored one from now on."""
        self._attempted.setdefault(partition, set()).add(position)

    def committed(self, positions: Iterable[tuple[Partition, int]]) -> None:
        """Note that these positions are the stored ones."""
        for partition, position in positions:
            self._attempted[partition] = {position}

    def is_ours(self, partition: Partition, stored: int) -> bool:
        """True if no other owner has committed the partition since its start here."""
        return stored in self._attempted.get(partition, ())

    def may_commit(self, partition: Partition) -> bool:
        return self.state is OrderState.PROVEN and partition in self.held
