"""The order of taking a partition over: which step may follow which, and for which partitions."""

import pytest

from ureplicator_common.errors import InvalidTransition
from ureplicator_common.model import OwnerEpoch, Partition, Route
from ureplicator_worker.copier.ownership.proof_order import OrderState, ProofOrder
from ureplicator_worker.lifeline.messages import Grant, ProofResponse

ROUTE = Route("a", "b")
P0, P1 = Partition(ROUTE, "t", 0), Partition(ROUTE, "t", 1)
ONE, TWO = OwnerEpoch(1), OwnerEpoch(2)


def granted(number: int, *partitions: Partition) -> ProofResponse:
    return ProofResponse(number, {part: Grant(ONE, "t") for part in partitions}, {})


def holding(*partitions: Partition) -> ProofOrder:
    """Everything proven and begun at position 10."""
    order = ProofOrder()
    order.add(dict.fromkeys(partitions, ONE))
    order.initialised()
    number = order.request().request_id
    order.response(granted(number, *partitions))
    order.proven()
    order.search(partitions)
    for partition in partitions:
        order.begin(partition, 10)
    return order


def searching(*partitions: Partition) -> tuple[ProofOrder, int]:
    """Everything proven and requested at the source; the number of the proof."""
    order = ProofOrder()
    order.add(dict.fromkeys(partitions, ONE))
    order.initialised()
    number = order.request().request_id
    order.response(granted(number, *partitions))
    order.proven()
    assert order.search(partitions) == number
    return order, number


def test_nothing_is_due_without_partitions() -> None:
    assert not ProofOrder().needs_proof


def test_no_request_before_the_id_is_initialised() -> None:
    order = ProofOrder()
    order.add({P0: ONE})
    with pytest.raises(InvalidTransition, match="UNINITIALISED"):
        order.request()
    with pytest.raises(InvalidTransition, match="before the id"):
        order.proven()


def test_one_request_at_a_time() -> None:
    order = ProofOrder()
    order.add({P0: ONE})
    order.initialised()
    request = order.request()
    assert request.partitions == {P0: ONE}
    assert not order.needs_proof
    with pytest.raises(InvalidTransition):
        order.request()
    order.response(granted(request.request_id))
    assert order.needs_proof
    assert order.response(granted(request.request_id)) is None


def test_initialised_twice_without_a_restart_is_a_mistake() -> None:
    order = holding(P0)
    with pytest.raises(InvalidTransition, match="initialised while PROVEN"):
        order.initialised()


def test_what_is_proven_may_be_committed_and_a_joining_partition_is_proven_alone() -> None:
    order = holding(P0)
    assert order.may_commit(P0)
    order.add({P1: ONE})
    assert order.needs_proof
    assert order.request().partitions == {P1: ONE}
    assert order.may_commit(P0)
    assert not order.may_commit(P1)


def test_after_a_restart_everything_is_proven_again() -> None:
    order = holding(P0)
    order.add({P1: TWO})
    order.restart()
    assert not order.may_commit(P0)
    assert order.state is OrderState.UNINITIALISED
    order.initialised()
    assert order.request().partitions == {P0: ONE, P1: TWO}


def test_a_restart_waits_for_the_outstanding_response() -> None:
    order = holding(P0)
    order.add({P1: ONE})
    number = order.request().request_id
    order.restart()
    assert not order.needs_proof
    order.response(granted(number, P1))
    assert order.needs_proof


def test_the_response_to_another_request_is_none() -> None:
    order = ProofOrder()
    order.add({P0: ONE})
    order.initialised()
    number = order.request().request_id
    assert order.response(granted(number + 1, P0)) is None
    assert not order.needs_proof


@pytest.mark.parametrize("refused", [True, False])
@pytest.mark.parametrize("again", [None, TWO])
def test_what_was_forgotten_since_the_request_is_in_no_proof(
    again: OwnerEpoch | None, refused: bool
) -> None:
    order = ProofOrder()
    order.add({P0: ONE, P1: ONE})
    order.initialised()
    number = order.request().request_id
    order.forget(P0)
    if again:
        order.add({P0: again})
    refusal = ProofResponse(number, {}, {P0: "taken away", P1: "taken away"})
    proof = order.response(refusal if refused else granted(number, P0, P1))
    assert proof is not None
    assert set(proof.refused if refused else proof.granted) == {P1}


def test_every_attempted_position_may_be_the_stored_one_until_a_commit_succeeds() -> None:
    order = holding(P0)
    assert order.is_ours(P0, 10)
    order.attempt(P0, 15)
    order.attempt(P0, 17)
    assert [offset for offset in range(20) if order.is_ours(P0, offset)] == [10, 15, 17]
    order.committed([(P0, 17)])
    assert [offset for offset in range(20) if order.is_ours(P0, offset)] == [17]


def test_a_forgotten_partition_is_held_no_more() -> None:
    order = holding(P0)
    order.forget(P0)
    assert not order.may_commit(P0)
    assert not order.is_ours(P0, 10)
    assert not order.needs_proof


def test_what_is_searched_needs_no_further_proof() -> None:
    order, number = searching(P0, P1)
    assert not order.needs_proof
    assert order.is_searched(P0, number)
    order.begin(P0, 10)
    assert not order.is_searched(P0, number)
    assert order.held == {P0: ONE}


def test_a_result_from_before_a_restart_does_not_count() -> None:
    """Another owner may have committed between the restart and the next proof."""
    order, number = searching(P0)
    order.restart()
    assert not order.is_searched(P0, number)
    assert order.waiting == {P0: ONE}
    order.initialised()
    second = order.request().request_id
    order.response(granted(second, P0))
    order.proven()
    order.search([P0])
    assert not order.is_searched(P0, number)
    assert order.is_searched(P0, second)


@pytest.mark.parametrize("added_again", [True, False])
def test_a_result_for_what_was_forgotten_does_not_count(added_again: bool) -> None:
    order, number = searching(P0)
    order.forget(P0)
    if added_again:
        order.add({P0: TWO})
    assert not order.is_searched(P0, number)
    assert order.needs_proof == added_again


def test_without_a_response_of_the_source_the_rest_waits_again() -> None:
    order, number = searching(P0, P1)
    order.begin(P0, 10)
    order.search_again(number)
    assert order.waiting == {P1: ONE}
    assert order.needs_proof
    assert order.state is OrderState.PROVEN
