"""One inference from the client's side."""

import numpy as np
import pytest

from privcirnet.he.encodings import subring
from privcirnet.he.engines.interface import ENGINES
from privcirnet.he.params.sizes import SEED_BYTES, message_bytes, reply_bits
from privcirnet.he.program.operations import Linear, Square
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.session import Traffic
from tests.he.networks import network, random_image
from tests.he.parties import check, parties


@pytest.mark.parametrize("engine", ENGINES)
def test_counts_and_bytes_of_every_exchange(engine: str) -> None:
    program = network()
    client, session = parties(program, engine)
    traffic = check(program, client, session, random_image(program))
    up, down = (8 * 8192, 8 * 8192) if engine == "cleartext" else message_bytes(program.parameters)
    bits, expected = reply_bits(program.parameters.coefficient_bits, program.parameters.plain_bits), []
    for position, node in enumerate(program.nodes):
        counts = session.meter.counts[node.name]
        match node.operation:
            case Linear(layer):
                sent, back = layer.ciphertexts_in * (up + 4), layer.ciphertexts_out * (down + 4)
                assert (counts["rotate"], counts["pmult"]) == (layer.rotations, layer.pmults)
            case Square():
                assert (counts["rotate"], counts["pmult"]) == (0, 1)
                (size,) = subring.sizes(int(np.prod(node.shape)), 8192)
                assert size < 8192
                seed = 0 if engine == "cleartext" else SEED_BYTES
                sent = size * (up - seed) // 8192 + seed + 4
                back = 4 + (8 * size if engine == "cleartext" else bits.octets(8192, size))
            case _:
                assert not counts
                continue
        expected.append(Traffic(position, 8 + sent, 8 + back))
        assert client.meter.seconds[node.name] > 0
        assert session.meter.seconds[node.name] > 0
    assert traffic == [*expected, Traffic(wire.OUTPUT, 8, 8 + 4 + 8 * 10)]
