"""Rounds of a preparation share messages: every node once, after what it needs, no longer than they may be."""

from typing import Any

import numpy as np
import pytest

from privcirnet.he.bfv.parameters import message_bytes
from privcirnet.he.protocol.rounds import batches
from privcirnet.he.protocol.rounds.batches import BatchedExchange, offline_generations
from privcirnet.he.protocol.rounds.linear import LinearExchange
from privcirnet.he.protocol.rounds.product import SquareExchange
from privcirnet.he.protocol.schedule import schedule_of
from tests.he.networks import attention, bottleneck, network, residual_of_the_image
from tests.ladder.exact import MIXED, TRANSFORMER

NETWORKS = [network, bottleneck, residual_of_the_image, attention]


@pytest.mark.parametrize("make", NETWORKS)
@pytest.mark.parametrize(("count", "ciphertexts"), [(1, 1), (3, 2), (1, 1 << 20)])
def test_every_round_comes_once_and_after_the_layers_that_it_follows_from(
    make: Any, count: int, ciphertexts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = make()
    exchanges, size = schedule_of(program).exchanges, max(message_bytes(program.parameters))
    monkeypatch.setattr(batches, "MESSAGE_BYTES", ciphertexts * size)
    found, done = schedule_of(program).offline(count), set[str]()
    for bundle in found:
        for node in bundle.nodes:
            assert needed(program, exchanges, node) <= done
        done |= {node.name for node in bundle.nodes}
        assert len(bundle.nodes) == 1 or bundle.longest <= ciphertexts * size
        parts = [bundle.part(position) for position in bundle.positions]
        assert np.allclose(np.sum(parts, axis=0), 1)
    assert sorted(node.name for bundle in found for node in bundle.nodes) == sorted(exchanges)
    if ciphertexts > len(exchanges):
        assert len(found) == len(offline_generations(program, exchanges)) <= 3


@pytest.mark.parametrize("make", [*NETWORKS, lambda: TRANSFORMER.program, lambda: MIXED.program])
def test_with_an_image_turns_begin_as_soon_as_inputs_are_there_and_nodes_come_once(make: Any) -> None:
    program, done, going = make(), set[str](), dict[int, int]()
    trips = schedule_of(program).online
    for trip in trips:
        for node in trip.before:
            assert done.issuperset(node.inputs)
            done.add(node.name)
        waiting = [node for node in program.nodes if node.name not in done and done.issuperset(node.inputs)]
        assert {program.nodes[number] for number in trip.shared} == set(waiting), "all that can go on goes on"
        assert [*trip.shared] == sorted(trip.shared)
        going |= dict.fromkeys(trip.begins, 0)
        for number in trip.shared:
            going[number] += 1
        assert sum(map(trip.part, trip.shared)) == pytest.approx(min(1.0, len(trip.shared)))
        for number in trip.ends:
            exchange = schedule_of(program).exchanges[program.nodes[number].name]
            assert 2 * going.pop(number) == len(exchange.online.turns(program.parameters.plain_modulus))
        done |= {program.nodes[number].name for number in trip.ends}
    assert len(done) == len(program.nodes)
    assert not going
    assert len(trips) == schedule_of(program).rounds_online


def needed(program: Any, exchanges: Any, node: Any) -> set[str]:
    """The layers whose results a node's round needs: those on the way to it that are not cut by a choice."""
    nodes, found = {each.name: each for each in program.nodes}, set[str]()
    for name in node.inputs:
        exchange = exchanges.get(name)
        if exchange is None:
            found |= needed(program, exchanges, nodes[name])
        elif not exchange.online.chosen:
            found |= {name}
    return found


def test_results_come_back_to_whoever_gave_the_shares() -> None:
    """Squares among other operations, of several images."""
    program, count, rng = network(), 3, np.random.default_rng(0)
    linear = next(e for e in schedule_of(program).exchanges.values() if isinstance(e, LinearExchange))
    together = BatchedExchange((SquareExchange(5, 64), linear, SquareExchange(70, 64)), count)
    shapes = [(count, 5), (count, *linear.layer.shape.input_shape), (count, 7, 10)]
    given = [rng.integers(0, 100, shape, dtype=np.uint64) for shape in shapes]
    parts = together.shares([[share] for share in given])
    assert len(parts) == count + 1
    ((request, _),) = together.trips
    assert request.ciphertexts == count * linear.plan.ciphertexts_up + 4
    results = together.results([share for (share,) in parts if share is not None])
    for share, result in zip(given, results, strict=True):
        assert np.array_equal(result.reshape(share.shape), share)
