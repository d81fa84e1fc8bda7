"""What each party can reach, and that every slot that is sent is uniformly masked."""

import gc
import types
from typing import Any

import numpy as np
import pytest
import tenseal.sealapi as seal

from privcirnet.he.encodings import spectral, subring
from privcirnet.he.encodings.bsgs import BsgsPlan
from privcirnet.he.encodings.integer import expand_rows
from privcirnet.he.encodings.layout import slots_to_lanes
from privcirnet.he.encodings.pieces import Piece
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.encodings.spectral_layer import SpectralLayer, encode_weights
from privcirnet.he.engines import cleartext, cyclic, interface, kernel, tenseal
from privcirnet.he.planning import planner
from privcirnet.he.program.operations import Product
from privcirnet.he.protocol.client import Client
from privcirnet.he.protocol.exchange import Held
from privcirnet.he.protocol.linear import LinearExchange
from privcirnet.he.protocol.product import ProductExchange
from privcirnet.he.protocol.server import Server
from privcirnet.he.protocol.square import SquareExchange
from privcirnet.he.ring import batching, modular, sampling
from tests.he.exchange import Party, random_input, random_rows
from tests.he.insecure import insecure_parameters
from tests.he.networks import network, random_image

REPLIES, BUCKETS = 480, 16
LIMIT = BUCKETS + 12 * np.sqrt(2 * BUCKETS)
"""Chi-square with 15 degrees of freedom is over it with probability under 1e-10."""

ENCRYPTED = ("kernel", "tenseal")

N = 64
LAYERS = [
    SpectralLayer(LinearShape(2, 2, 2, 2, 3, 1, 1), 2, N, (2, 2), (Piece(1, 1, 2, 1),)),
    SpectralLayer(LinearShape(3, 3, 3, 1, 3, 2, 1), 1, N, (2, 2), (Piece(1, 1, 4, 1, folds_on_shares=False),)),
    SpectralLayer(LinearShape(4, 2, 1, 2, 3, 1, 1), 1, N, (2, 2), (Piece(1, 1, 4, 1), Piece(1, 1, 2, 1, 1, True))),
    SpectralLayer(LinearShape(2, 2, 3, 3, 3, 1, 1, groups=3), 1, N, (2, 2), (Piece(3, 1, 2, 1),)),
    SpectralLayer(LinearShape.gemm(3, 4, 2), 1, N, (1, 1), (Piece(1, 3, 16, 1, 2),)),
    SpectralLayer(LinearShape.gemm(1, 3, 2), 1, N, (1, 1), (Piece(1, 1, 32, 2, folds_on_shares=False),)),
    SpectralLayer(LinearShape.gemm(4, 8, 8), 1, N, (1, 1), (Piece(1, 4, 16, 2, giants_on_shares=True),)),
    SpectralLayer(LinearShape.gemm(4, 8, 2), 1, N, (1, 1), (Piece(1, 4, 16, 1),)),
]
"""Whole and half-used lanes and ciphertexts, padding, tiles, groups, copies, folds, giant steps on shares."""


def worst_chi_square(samples: np.ndarray, t: int) -> float:
    """Over columns of (replies, columns): uniform in [0, t) or not, in equal intervals."""
    bucket = samples * np.uint64(BUCKETS) // np.uint64(t)
    counts = np.stack([(bucket == i).sum(axis=0) for i in range(BUCKETS)])
    expected = len(samples) / BUCKETS
    return float(((counts - expected) ** 2 / expected).sum(axis=0).max())


def pairwise(samples: np.ndarray, t: int) -> np.ndarray:
    """Differences of every two columns."""
    first, second = np.triu_indices(samples.shape[1], 1)
    return modular.subtract(samples[:, first], samples[:, second], t)


def replies_to(layer: SpectralLayer, mask_bound: int | None = None) -> tuple[np.ndarray, int]:
    """Decrypted replies to one and the same request, (replies, slots)."""
    parameters = insecure_parameters(N, layer.transform_lengths, 20)
    bias = np.arange(layer.shape.out_channels)
    party = Party(layer, random_rows(layer.shape, layer.block_size), bias, parameters, mask_bound)
    t = parameters.plain_modulus
    request = party.exchange.request([modular.residues(random_input(layer.shape), t)], party.client)
    found = []
    for _ in range(REPLIES):
        messages, _ = party.exchange.reply(party.held, [None], request, party.server, party.keys)
        found.append(np.concatenate([party.client.decrypt(m) for m in messages]))
    return np.stack(found), t


@pytest.mark.parametrize("bound", [None, 100], ids=["uniform", "bounded"])
@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: f"{layer.shape.kind}-{layer.layout.cell}")
def test_every_slot_of_a_reply_is_uniform(layer: SpectralLayer, bound: int | None) -> None:
    """And every two of them together: also slots that hold no output, where bare products would tell the weights."""
    samples, t = replies_to(layer, bound)
    assert samples.shape[1] == layer.ciphertexts_out * N
    assert worst_chi_square(samples, t) < LIMIT
    assert worst_chi_square(pairwise(samples, t), t) < LIMIT


def test_padding_is_masked_too() -> None:
    """Transformed back, every position of a block is uniform, the ones that are cut off as well.

    Each slot mixes all positions, so a mask of the wanted ones alone passes the tests on slots; the cut-off ones
    would show sums of products of the weights.
    """
    layer = LAYERS[0]
    layout = layer.layout
    samples, t = replies_to(layer)
    assert (layout.cell, layout.extent) == (2 * 3 * 3, (3, 3))
    blocks = slots_to_lanes(samples, 2)[:, 0, : layout.cell].reshape(-1, 2, *layout.extent)
    for axis in (1, 2, 3):
        blocks = cyclic.cyclic(blocks, axis, t, inverse=True)
    positions = blocks.reshape(len(samples), -1)
    assert positions.shape[1] == 2 * 3 * 3
    assert worst_chi_square(positions, t) < LIMIT
    assert worst_chi_square(pairwise(positions, t), t) < LIMIT


def test_every_slot_of_a_square_is_uniform() -> None:
    parameters = insecure_parameters(N, None, 20)
    client, server = interface.client_engine("cleartext", parameters), interface.server_engine("cleartext", parameters)
    t, share = parameters.plain_modulus, np.arange(1, N + 6, dtype=np.uint64)
    exchange = SquareExchange(N + 5, N)
    request, kept, found = exchange.request([share], client), subring.kept(N + 5, N), []
    for _ in range(REPLIES):
        messages, _ = exchange.reply(Held(), [share], request, server, frozenset())
        slots = [client.decrypt(m, places) for m, places in zip(messages, kept, strict=True)]
        sent = [batching.slots_to_coefficients(row, t)[places] for row, places in zip(slots, kept, strict=True)]
        found.append(np.concatenate(sent))
    samples = np.stack(found)
    assert samples.shape[1] == N + 8
    assert worst_chi_square(samples, t) < LIMIT
    assert worst_chi_square(pairwise(samples, t), t) < LIMIT


@pytest.mark.parametrize("bound", [None, 100], ids=["uniform", "bounded"])
def test_every_slot_of_a_product_is_uniform(bound: int | None) -> None:
    """Of both terms' replies together: with a bounded mask of the sum, neither term nor slot tells anything."""
    left, right, n = (4, 3, 1), (4, 2, 1), 64
    shapes = LinearShape.product(left, right, 2), LinearShape.product(right, left, 2)
    factors = Product(*(SpectralLayer(shape, 1, n, (1, 1), (Piece(2, shape.height, 4, 2),)) for shape in shapes))
    parameters = insecure_parameters(n, None, 20)
    client, server = interface.client_engine("cleartext", parameters), interface.server_engine("cleartext", parameters)
    t = parameters.plain_modulus
    steps = factors.left.column_steps | factors.right.column_steps
    keys = server.load_keys(client.public_keys(steps), steps)
    pair = np.arange(1, 13, dtype=np.uint64).reshape(left), np.arange(1, 9, dtype=np.uint64).reshape(right)
    exchange, held = ProductExchange(factors), Held(bias=np.arange(4), mask_bound=bound)
    request, found = exchange.request(pair, client), []
    for _ in range(REPLIES):
        messages, _ = exchange.reply(held, pair, request, server, keys)
        found.append(np.concatenate([client.decrypt(m) for m in messages]))
    samples = np.stack(found)
    assert samples.shape[1] == 2 * n
    assert worst_chi_square(samples, t) < LIMIT
    assert worst_chi_square(pairwise(samples, t), t) < LIMIT


def test_the_test_sees_an_unmasked_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the fill of unused slots left out, or one mask for two slots, the figures are far over their limit."""
    original = sampling.uniform

    def unfilled(shape: tuple[int, ...], t: int) -> Any:
        slots = original(shape, t)
        slots[..., -1] = 0
        return slots

    def repeated(shape: tuple[int, ...], t: int) -> Any:
        slots = original(shape, t)
        slots[..., 0] = slots[..., 1]
        return slots

    with monkeypatch.context() as patch:
        patch.setattr(sampling, "uniform", unfilled)
        assert worst_chi_square(*replies_to(LAYERS[0])) > 10 * LIMIT
    with monkeypatch.context() as patch:
        patch.setattr(sampling, "uniform", repeated)
        samples, t = replies_to(LAYERS[0])
        assert worst_chi_square(pairwise(samples, t), t) > 10 * LIMIT


@pytest.mark.parametrize("name", ENCRYPTED)
def test_encrypted_replies_differ_in_every_slot(name: str) -> None:
    """An encrypted engine on one request twice: no slot keeps its value."""
    layer = planner.paper_layer(LinearShape(4, 4, 4, 4, 3, 1, 1), 2, 8192)
    parameters = network().parameters
    client, server = interface.client_engine(name, parameters), interface.server_engine(name, parameters)
    rows = random_rows(layer.shape, 2)
    spectrum = spectral.weight_spectrum(layer.layout, rows, parameters.plain_modulus)
    exchange, held = LinearExchange(layer), Held(encode_weights(layer, spectrum, server))
    keys = server.load_keys(client.public_keys(layer.column_steps), layer.column_steps)
    request = exchange.request([modular.residues(random_input(layer.shape), parameters.plain_modulus)], client)
    first, second = (
        np.concatenate([client.decrypt(m) for m in exchange.reply(held, [None], request, server, keys)[0]])
        for _ in range(2)
    )
    assert (first != second).all()


def reachable(*roots: object) -> list[object]:
    """Everything that objects hold, directly or not; code, classes and modules are not followed."""
    closed = (type, types.ModuleType, types.FunctionType, types.CodeType, types.BuiltinFunctionType)
    known, waiting = {}, list(roots)
    while waiting:
        item = waiting.pop()
        if id(item) in known or isinstance(item, closed):
            continue
        known[id(item)] = item
        waiting += gc.get_referents(item)
    return list(known.values())


SECRETS = (
    tenseal.TensealClient,
    cleartext.CleartextClient,
    seal.KeyGenerator,
    seal.SecretKey,
    seal.Encryptor,
    seal.Decryptor,
)


@pytest.fixture(scope="module", params=ENCRYPTED)
def midway(request: pytest.FixtureRequest) -> tuple[list[object], list[object], Server]:
    """What (client, server) reach in the middle of an inference."""
    server = Server(network(), request.param)
    client = Client(server.greeting(), request.param)
    session = server.session(client.keys())
    exchange = client.infer(random_image(server.program))
    message = next(exchange)
    for _ in range(2):
        message = exchange.send(session.handle(message))
    reply = session.handle(message)
    return reachable(client, exchange, message), reachable(server, session, reply), server


def test_the_server_reaches_no_key_that_decrypts(midway: tuple[list[object], list[object], Server]) -> None:
    """Two parties in one process have nothing but plans in common, which are public and known by their shapes."""
    of_client, of_server, _ = midway
    assert not [item for item in of_server if isinstance(item, SECRETS)]
    assert {tenseal.TensealClient, seal.KeyGenerator, seal.Encryptor, seal.Decryptor} <= {
        type(item) for item in of_client
    }
    common = {id(i) for i in of_client} & {id(i) for i in of_server}
    plans = [item for item in of_client if isinstance(item, BsgsPlan)]
    public = {id(item) for item in reachable(*plans)}
    assert plans
    shared = [item for item in of_client if id(item) in common - public]
    assert not [item for item in shared if isinstance(item, np.ndarray | tenseal._Context | Client | Server)]


def arrays(items: list[object]) -> list[np.ndarray]:
    return [item for item in items if isinstance(item, np.ndarray)]


def holds(found: list[np.ndarray], wanted: np.ndarray) -> bool:
    flat = wanted.reshape(-1)
    return any(array.size == flat.size and (array.reshape(-1) == flat).all() for array in found)


def test_the_client_reaches_no_weight(midway: tuple[list[object], list[object], Server]) -> None:
    of_client, of_server, server = midway
    program, t = server.program, server.program.parameters.plain_modulus
    secrets = []
    for node, layer in program.linear_nodes:
        weights = program.weights[node.name]
        spectrum = spectral.weight_spectrum(layer.layout, weights.rows, t)
        dense = expand_rows(weights.rows, layer.block_size)
        secrets += [weights.rows, weights.bias, modular.residues(weights.bias, t), spectrum, dense]
        assert holds(arrays(of_server), weights.rows)
        assert holds(arrays(of_server), weights.bias)
    assert arrays(of_client)
    assert not [secret for secret in secrets if holds(arrays(of_client), secret)]
    assert not [item for item in of_client if isinstance(item, tenseal.TensealServer | kernel.KernelServer | Server)]


def test_the_greeting_does_not_depend_on_the_weights() -> None:
    first, second = (Server(network(seed=seed), "cleartext").greeting() for seed in (0, 1))
    assert first == second
    assert not np.array_equal(network(seed=0).weights["head"].rows, network(seed=1).weights["head"].rows)
