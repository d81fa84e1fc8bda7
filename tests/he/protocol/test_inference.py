"""The whole protocol, both parties: results, counts, and what happens to messages that are not due."""

from collections.abc import Callable

import numpy as np
import pytest

from privcirnet.he.bfv.engines import ENGINES
from privcirnet.he.bfv.parameters import SEAL_SEED_BYTES, message_bytes, reply_bits
from privcirnet.he.layers import subring
from privcirnet.he.program.operations import Linear, Square
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.parties.session import Traffic
from privcirnet.he.protocol.schedule import schedule_of
from privcirnet.he.ring import sampling
from privcirnet.he.rlwe.wire_bytes import SEED_BYTES
from tests.he.networks import attention, network, random_image, residual_of_the_image
from tests.he.parties import check, parties, seeded


@pytest.mark.parametrize("end", [-8, 15])
def test_images_at_the_ends_of_the_range(end: int) -> None:
    program = network()
    check(program, *parties(program, "cleartext"), np.full((4, 8, 8), end))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_sum_with_the_image_itself(engine: str) -> None:
    program = residual_of_the_image()
    client, session = parties(program, engine)
    check(program, client, session, random_image(program))


@pytest.mark.parametrize("made", [network, attention])
def test_encrypted_equals_clear_text_bit_for_bit(made: Callable[[], Program], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same masks all engines give both parties the same shares, node by node, and the right values."""
    program, results = made(), []
    for engine in ENGINES:
        client, session = parties(program, engine)
        monkeypatch.setattr(sampling, "uniform", seeded(7))
        traffic = check(program, client, session, random_image(program))
        results.append(([t.position for t in traffic], client.shares, session.shares))
    *encrypted, clear = results
    assert len(encrypted) == 2
    for found in encrypted:
        assert found[0] == clear[0]
        for mine, other in zip(found[1:3], clear[1:3], strict=True):
            assert mine.keys() == other.keys()
            assert all(np.array_equal(mine[name], other[name]) for name in mine if mine[name] is not None)


@pytest.mark.parametrize("engine", ENGINES)
def test_counts_and_bytes_of_every_exchange(engine: str) -> None:
    program = network()
    client, session = parties(program, engine)
    traffic = check(program, client, session, random_image(program))
    seed = {"cleartext": 0, "kernel": SEED_BYTES, "tenseal": SEAL_SEED_BYTES}[engine]
    up, down = message_bytes(program.parameters, seed) if seed else (8 * 8192, 8 * 8192)
    bits, expected = reply_bits(program.parameters.coefficient_bits, program.parameters.plain_bits), {}
    for position, node in enumerate(program.nodes):
        counts = session.preparation.counts[node.name]
        match node.operation:
            case Linear(layer):
                sent, back = layer.ciphertexts_in * (up + 4), layer.ciphertexts_out * (down + 4)
                assert (counts["rotate"], counts["pmult"]) == (layer.rotations, layer.pmults)
            case Square():
                assert (counts["rotate"], counts["pmult"]) == (0, 1)
                (size,) = subring.sizes(int(np.prod(node.shape)), 8192)
                assert size < 8192
                sent = size * (up - seed) // 8192 + seed + 4
                back = 4 + (8 * size if engine == "cleartext" else bits.octets(8192, size))
            case _:
                assert not counts
                continue
        expected[position] = sent, back
        assert client.preparation.seconds[node.name] > 0
        assert session.preparation.seconds[node.name] > 0
    ahead = [
        Traffic(bundle.position, *(8 + sum(sizes) for sizes in zip(*each, strict=True)))
        for bundle in schedule_of(program).offline(1)
        if (each := [expected.pop(position) for position in bundle.positions])
    ]
    assert expected == {}
    assert traffic[2 : 2 + len(ahead)] == ahead  # behind AGREE and PREPARE
