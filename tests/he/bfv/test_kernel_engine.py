"""The compiled engine beside SEAL, bit for bit where it computes the same, and by slots and noise where it does not."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import tenseal.sealapi as seal
from hypothesis import given, reject
from hypothesis import strategies as st

from privcirnet.errors import RuleError
from privcirnet.he.bfv import batching
from privcirnet.he.bfv import kernel_engine as kernel
from privcirnet.he.bfv import seal as tenseal
from privcirnet.he.bfv.client import KernelClient
from privcirnet.he.bfv.engines import CleartextServer
from privcirnet.he.bfv.kernels import reply
from privcirnet.he.bfv.layer_circuit import LayerCircuit, Pair
from privcirnet.he.bfv.noise import flood_bits, largest_plain_bits
from privcirnet.he.bfv.parameters import (
    DEFAULT_COEFFICIENT_BITS,
    SEAL_SEED_BYTES,
    WIDE_COEFFICIENT_BITS,
    WIDE_RING_DEGREE,
    Parameters,
    choose,
)
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.ring import modular, sampling
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.rlwe.kernels import gadget, wire_bytes
from privcirnet.he.rlwe.parameters import galois_element
from privcirnet.he.rlwe.wire_bytes import SEED_BYTES
from privcirnet.he.system import threads
from tests.he.circuit_examples import circuits, inputs_of, random_weights
from tests.he.exchange import Party, random_input, random_rows, slow_layer
from tests.he.layer_examples import layers
from tests.he.pairs import some_places
from tests.he.replies import nothing, unswitched
from tests.he.secrets import Reader, fresh, twin

DEFAULT = choose({1}, 46)
WIDE = choose({1}, 60, WIDE_RING_DEGREE, WIDE_COEFFICIENT_BITS)
NARROW = choose({1}, 28, 4096, (36, 35, 35))
"""Its replies keep two of two data primes: nothing is switched."""

SHORT = choose({1}, 30)
"""Its replies keep one of three data primes."""

STEPS = (1, 2, 256, 3000, 4095)


@dataclass
class Engines:
    """Clients with one secret key, and both servers with keys of theirs; requests are the kernels'."""

    parameters: Parameters
    steps: tuple[int, ...]
    sender: KernelClient = field(init=False)
    client: tenseal.TensealClient = field(init=False)
    ours: kernel.KernelServer = field(init=False)
    theirs: Reader = field(init=False)
    clear: CleartextServer = field(init=False)

    def __post_init__(self) -> None:
        self.sender = KernelClient(self.parameters)
        self.client = twin(self.sender)
        self.ours, self.theirs = kernel.KernelServer(self.parameters), Reader(self.parameters)
        self.clear = CleartextServer(self.parameters)
        self.keys, self.seal_keys = (
            server.load_keys(client.public_keys(self.steps), self.steps) for server, client in self.pairs
        )

    @property
    def pairs(self) -> tuple[tuple[Any, Any], ...]:
        """Each engine's server and client."""
        return (self.ours, self.sender), (self.theirs, self.client)

    def slots(self, count: int) -> Residues:
        return sampling.uniform((count, self.parameters.ring_degree), self.parameters.plain_modulus)

    def requests(self, slots: Residues) -> list[bytes]:
        return [self.sender.encrypt(own) for own in slots]

    def coefficients(self, found: kernel.KernelCiphertext) -> Residues:
        """Coefficients of one of the kernel engine's ciphertexts, (2, L, n)."""
        if not found.ntt:
            return found.residues
        residues = gadget.divided(found.residues, self.ours._ring)
        self.ours._ring.to_coefficients(residues)
        return residues

    def seal_coefficients(self, found: Any) -> Residues:
        """The same of one of SEAL's."""
        context = self.theirs._context
        return tenseal._words(context.save(found), context.data_level)[0]

    def loaded(self, found: kernel.KernelCiphertext) -> Any:
        """One of the kernel engine's ciphertexts as SEAL's."""
        return fresh(self.client, self.coefficients(found))

    def decrypted(self, found: kernel.KernelCiphertext) -> Residues:
        plaintext = seal.Plaintext()
        self.client._decryptor.decrypt(self.loaded(found), plaintext)
        return np.array(self.client._context.encoder.decode_uint64(plaintext), dtype=np.uint64)

    def same(self, found: Sequence[kernel.KernelCiphertext], wanted: Sequence[Any]) -> bool:
        """Bit for bit."""
        return len(found) == len(wanted) and all(
            np.array_equal(self.coefficients(own), self.seal_coefficients(other))
            for own, other in zip(found, wanted, strict=True)
        )


@functools.cache
def engines(parameters: Parameters = DEFAULT, steps: tuple[int, ...] = STEPS) -> Engines:
    return Engines(parameters, steps)


SETS = pytest.mark.parametrize("parameters", [DEFAULT, WIDE, NARROW], ids=["default", "wide", "narrow"])


@SETS
@pytest.mark.parametrize("added", [False, True])
def test_ciphertexts_arrive_as_in_seal(parameters: Parameters, added: bool) -> None:
    both = engines(parameters, ())
    slots, messages = both.slots(3), both.requests(both.slots(3))
    addends = slots if added else None
    assert both.same(both.ours.receive_all(messages, addends), both.theirs.receive_all(messages, addends))


def run(server: Any, circuit: LayerCircuit, weights: Residues, received: Any, keys: Any) -> Any:
    return server.evaluate(circuit, server.encode_weights(circuit, weights), received, keys)


@given(circuits(), st.integers(0, 99))
def test_products_and_sums_are_seal_s(circuit: LayerCircuit, seed: int) -> None:
    both = engines()
    messages = both.requests(both.slots(inputs_of(circuit)))
    weights = random_weights(circuit, both.parameters.ring_degree, both.parameters.plain_modulus, seed)
    found = run(both.ours, circuit, weights, both.ours.receive_all(messages, None), both.keys)
    assert both.same(found, run(both.theirs, circuit, weights, both.theirs.receive_all(messages, None), both.seal_keys))


@pytest.fixture
def nothing_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """All randomness of replies is zero."""
    monkeypatch.setattr(reply, "draw", nothing)


def bare_replies(
    server: tenseal.TensealServer, found: Sequence[Any], addends: Residues, kept: Sequence[Integers] | None
) -> list[bytes]:
    """SEAL's replies without anything that hides."""
    level, context = server._context.reply_level, server._context
    masked = [server.add_plain(own, server.encode(slots)) for own, slots in zip(found, addends, strict=True)]
    switched = [server._apply(server._evaluator.mod_switch_to, own, list(level.parms_id)) for own in masked]
    places = kept or [None] * len(switched)
    files = map(context.save, switched)
    return [tenseal.compact_reply(f, level, context.replies, p) for f, p in zip(files, places, strict=True)]


@pytest.mark.parametrize("parameters", [DEFAULT, NARROW, SHORT], ids=["default", "narrow", "short"])
@pytest.mark.parametrize("some", [False, True], ids=["whole", "kept"])
def test_masks_switches_and_bytes_are_seal_s(parameters: Parameters, some: bool, nothing_hidden: None) -> None:
    both, count = engines(parameters, ()), 7
    messages, addends = both.requests(both.slots(count)), both.slots(count)
    kept = some_places(parameters.ring_degree, count) if some else None
    found = both.ours.reply_all(both.ours.receive_all(messages, None), addends, both.keys, kept)
    assert found == bare_replies(both.theirs, both.theirs.receive_all(messages, None), addends, kept)


@SETS
def test_slot_wise_products_and_their_replies_are_seal_s(parameters: Parameters, nothing_hidden: None) -> None:
    both = engines(parameters, ())
    messages, factors, addends = both.requests(both.slots(3)), both.slots(3), both.slots(3)
    own, other = (
        server.multiply_all(server.receive_all(messages, None), factors) for server in (both.ours, both.theirs)
    )
    assert both.same(own, other)
    assert both.ours.reply_all(own, addends, both.keys) == bare_replies(both.theirs, other, addends, None)


def clear_run(both: Engines, circuit: LayerCircuit, weights: Residues, slots: Residues) -> list[Residues]:
    """The slots of a circuit's outputs by the clear-text twin."""
    received = [both.clear.receive(own.astype("<u8").tobytes()) for own in slots]
    keys = frozenset(galois_element(step, both.parameters.ring_degree) for step in STEPS)
    return [found.values for found in run(both.clear, circuit, weights, received, keys)]


@given(circuits(steps=(0, *STEPS)), st.integers(0, 99))
def test_any_circuit_has_its_clear_text_twin_s_slots_and_counts(circuit: LayerCircuit, seed: int) -> None:
    both = engines()
    slots = both.slots(inputs_of(circuit))
    weights = random_weights(circuit, both.parameters.ring_degree, both.parameters.plain_modulus, seed)
    received = both.ours.receive_all(both.requests(slots), None)
    both.ours.counts.clear()
    both.clear.counts.clear()
    found = run(both.ours, circuit, weights, received, both.keys)
    wanted = clear_run(both, circuit, weights, slots)
    assert all(np.array_equal(both.decrypted(own), other) for own, other in zip(found, wanted, strict=True))
    for name in ("rotate", "pmult"):
        assert both.ours.counts[name] == both.clear.counts[name]


@given(layers())
def test_any_layer_from_input_to_output(layer: SpectralLayer) -> None:
    try:
        layer = replace(layer, ring_degree=8192)
    except RuleError:
        reject()
    shape, b = layer.shape, layer.block_size
    rows, x, bias = random_rows(shape, b), random_input(shape), np.arange(shape.out_channels)
    party = Party(layer, rows, bias, choose(layer.transform_lengths, 46), engine="kernel")
    assert np.array_equal(party.run(x), slow_layer(shape, b, rows, bias, x))


def one_turn(kind: str, step: int) -> LayerCircuit:
    """One product and one rotation: of the input, of the product, or of the product and added to it."""
    baby, giant, fold = ((step if kind == own else 0) for own in ("baby", "giant", "fold"))
    return LayerCircuit(((0, baby),), (((0, 0),),), (((0, giant),),), ((fold,) if fold else (),), 1)


def outcomes(both: Engines, circuit: LayerCircuit) -> tuple[kernel.KernelCiphertext, Any, Residues]:
    """(kernel's, SEAL's, clear text's) only output."""
    slots, weights = both.slots(inputs_of(circuit)), both.slots(circuit.weights)
    messages = both.requests(slots)
    (own,) = run(both.ours, circuit, weights, both.ours.receive_all(messages, None), both.keys)
    (other,) = run(both.theirs, circuit, weights, both.theirs.receive_all(messages, None), both.seal_keys)
    (wanted,) = clear_run(both, circuit, weights, slots)
    return own, other, wanted


@pytest.mark.parametrize("kind", ["baby", "giant", "fold"])
@pytest.mark.parametrize(("parameters", "steps"), [(DEFAULT, STEPS), (WIDE, (3000,))], ids=["default", "wide"])
def test_rotations_turn_slots_with_as_much_noise_as_seal_s(
    kind: str, parameters: Parameters, steps: tuple[int, ...]
) -> None:
    both = engines(parameters, steps)
    budget = both.client._decryptor.invariant_noise_budget
    for step in steps:
        own, other, wanted = outcomes(both, one_turn(kind, step))
        assert abs(budget(both.loaded(own)) - budget(other)) <= 2
        assert np.array_equal(both.decrypted(own), wanted)


def extreme_plaintext(n: int, t: int) -> Residues:
    """Slots whose polynomial's coefficients are as large as can be, of both signs."""
    random = np.random.default_rng(0)
    return batching.coefficients_to_slots(random.choice(np.array([t // 2, t // 2 + 1], dtype=np.uint64), n), t)


def test_largest_values() -> None:
    """All slots t - 1, coefficients around t / 2, 64 products of rotated inputs to a sum, the largest t for that."""
    bits = largest_plain_bits(8192, DEFAULT_COEFFICIENT_BITS, 64)
    both = engines(choose({1}, bits))
    n, t = both.parameters.ring_degree, both.parameters.plain_modulus
    rotated = tuple((source, step) for source in range(11) for step in (0, *STEPS))[:64]
    circuit = LayerCircuit(rotated, (tuple((number, number % 2) for number in range(64)),), (((0, 256),),), ((),), 2)
    slots = np.full((11, n), t - 1, dtype=np.uint64)
    weights = np.stack([slots[0], extreme_plaintext(n, t)])
    received = both.ours.receive_all(both.requests(slots), slots)
    (found,) = run(both.ours, circuit, weights, received, both.keys)
    (wanted,) = clear_run(both, circuit, weights, modular.add(slots, slots, t))
    assert np.array_equal(both.decrypted(found), wanted)
    (reply,) = both.ours.reply_all([found], slots[:1], both.keys)
    assert np.array_equal(both.client.decrypt(reply), modular.add(wanted, slots[0], t))


@pytest.mark.parametrize(("rotated", "block"), [(1, 1), (3, 2), (1000, 1000)])
def test_results_do_not_depend_on_the_limits(monkeypatch: pytest.MonkeyPatch, rotated: int, block: int) -> None:
    both, n, t = engines(), DEFAULT.ring_degree, DEFAULT.plain_modulus
    circuit = several_pieces(4)
    weights, messages = random_weights(circuit, n, t, 1), both.requests(both.slots(4))

    def results() -> list[kernel.KernelCiphertext]:
        return run(both.ours, circuit, weights, both.ours.receive_all(messages, None), both.keys)

    wanted = results()
    monkeypatch.setattr(kernel, "LIMITS", kernel.Limits(rotated, block, 1000))
    segments = both.ours.encode_weights(circuit, weights).segments
    assert (len(segments), len(segments[0].blocks)) == {1: (4, 2), 3: (2, 4), 1000: (1, 1)}[rotated]
    for own, other in zip(results(), wanted, strict=True):
        assert np.array_equal(own.residues, other.residues)


@given(circuits(STEPS), st.integers(0, 2**32))
def test_results_do_not_depend_on_the_threads(circuit: LayerCircuit, seed: int) -> None:
    """With more of them than outputs, the giant steps of one output are shared out."""
    both = engines()
    weights = random_weights(circuit, DEFAULT.ring_degree, DEFAULT.plain_modulus, seed)
    received = both.ours.receive_all(both.requests(both.slots(inputs_of(circuit))), None)
    found: list[list[Residues]] = []
    for count in (1, 2, 5):
        with threads.using(count):
            found.append([both.coefficients(out) for out in run(both.ours, circuit, weights, received, both.keys)])
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))


def several_pieces(pieces: int) -> LayerCircuit:
    """Pieces that share nothing, each of two rotated inputs, three inner sums and two outputs."""
    rotated: list[Pair] = []
    sums: list[tuple[Pair, ...]] = []
    outputs: list[tuple[Pair, ...]] = []
    for piece in range(pieces):
        first, number = len(rotated), len(sums)
        rotated += [(piece, 0), (piece, 256)]
        sums += [((first, 1), (first + 1, 2)), ((first, 3),), ((first, 2), (first + 1, 0))]
        outputs += [((number, 0), (number + 1, 2)), ((number + 2, 0),)]
    return LayerCircuit(tuple(rotated), tuple(sums), tuple(outputs), ((), (1,)) * pieces, 4)


def hidden_results() -> dict[str, kernel.KernelCiphertext]:
    """One result in each form: as received, in the NTT domain, extended."""
    both = engines()
    slots = both.slots(1)
    received = both.ours.receive_all(both.requests(slots), None)
    found = {kind: run(both.ours, one_turn(kind, 3000), slots, received, both.keys)[0] for kind in ("baby", "giant")}
    return {"received": received[0], **found}


def copied(found: kernel.KernelCiphertext) -> kernel.KernelCiphertext:
    return kernel.KernelCiphertext(found.residues.copy(), found.ntt)


@pytest.mark.parametrize("form", ["received", "baby", "giant"])
def test_replies_are_flooded(form: str) -> None:
    """Before the switch: noise up to 1.5 times the flooding's width, other words every time, the right slots."""
    both, result = engines(), hidden_results()[form]
    t, flood = both.parameters.plain_modulus, flood_bits(both.parameters)
    addends = both.slots(1)
    make = functools.partial(both.ours.reply_all, addends=addends, keys=both.keys)
    (first,), (second,) = (unswitched(lambda: make([copied(result)])) for _ in range(2))
    assert (first != second).mean() > 0.999
    assert (first[1] != both.coefficients(result)[1]).mean() > 0.999
    modulus = sum(map(math.log2, both.ours._modulus.primes))
    for own in (first, second):
        found = kernel.KernelCiphertext(own, ntt=False)
        noise = modulus - both.client._decryptor.invariant_noise_budget(both.loaded(found)) - math.log2(t) - 1
        assert flood - 1 <= noise <= flood + 2, "1.5 times 2^flood, and a budget is of whole bits"
        assert np.array_equal(both.decrypted(found), modular.add(both.decrypted(result), addends[0], t))


@pytest.mark.parametrize("form", ["received", "baby", "giant"])
def test_every_reply_is_another_one_and_decrypts(form: str) -> None:
    both, result = engines(), hidden_results()[form]
    addends = both.slots(1)
    together = both.ours.reply_all([copied(result) for _ in range(3)], np.repeat(addends, 3, axis=0), both.keys)
    replies = [*together, *both.ours.reply_all([copied(result)], addends, both.keys)]
    assert len({reply[len(reply) // 2 :] for reply in replies}) == 4
    wanted = modular.add(both.decrypted(result), addends[0], both.parameters.plain_modulus)
    assert all(np.array_equal(both.client.decrypt(reply), wanted) for reply in replies)


@pytest.mark.parametrize("change", [lambda m: m[:-1], lambda m: m + b"\0", lambda m: b"", lambda m: m[64:]])
def test_messages_of_another_length_are_refused(change: Callable[[bytes], bytes]) -> None:
    both = engines(NARROW, (1,))
    for server, client in both.pairs:
        message = change(client.encrypt(both.slots(1)[0]))
        with pytest.raises(RuleError, match=rf"the parameters fix: got {len(message)} bytes where"):
            server.receive_all([message], None)


@pytest.mark.parametrize("prime", [0, 1])
@pytest.mark.parametrize("place", [0, 17, 4095])
def test_the_first_residue_out_of_range_is_refused(prime: int, place: int) -> None:
    both = engines(NARROW, (1,))
    for server, client in both.pairs:
        good, message = client.encrypt_all(both.slots(2))
        modulus = both.ours._modulus
        size = modulus.compact_size(1)
        words = wire_bytes.unpack(message[:size], modulus.primes, modulus.bits)
        words[prime, place] = modulus.primes[prime] - 1
        server.receive_all([good, wire_bytes.pack(words, modulus.bits) + message[size:]], None)
        words[prime, place] = modulus.primes[prime]
        with pytest.raises(RuleError, match="every residue must be under its prime"):
            server.receive_all([good, wire_bytes.pack(words, modulus.bits) + message[size:]], None)


@pytest.mark.parametrize("polynomial", [0, 1, 2], ids=["public key", "first digit", "last digit"])
def test_keys_with_a_residue_out_of_range_are_refused(polynomial: int) -> None:
    both = engines(NARROW, (1,))
    rlwe = both.parameters.rlwe
    public, digit = (
        modulus.compact_size(1) for modulus in (both.ours._modulus, rlwe.key_modulus(len(rlwe.data_primes)))
    )
    for (server, client), seed in zip(both.pairs, (SEED_BYTES, SEAL_SEED_BYTES), strict=True):
        end = public + polynomial * (seed + digit)
        message = bytearray(client.public_keys([1]))
        assert len(message) == public + 2 * digit + 3 * seed
        message[end - 5 : end] = b"\xff" * 5
        with pytest.raises(RuleError, match="every residue must be under its prime"):
            server.load_keys(bytes(message), [1])


def test_a_rotation_without_a_key_is_refused() -> None:
    both = engines(NARROW, (1,))
    received = both.ours.receive_all(both.requests(both.slots(1)), None)
    for kind in ("baby", "giant", "fold"):
        with pytest.raises(RuleError, match=r"rotation must have a key: got none for the Galois elements \[9\]"):
            run(both.ours, one_turn(kind, 2), both.slots(1), received, both.keys)


@pytest.mark.parametrize("kind", ["baby", "giant", "fold"])
def test_a_sum_of_zeros_alone_is_zero(kind: str) -> None:
    both = engines(NARROW, (1,))
    zero, mask = np.zeros((1, NARROW.ring_degree), dtype=np.uint64), both.slots(1)
    for server, keys in ((both.ours, both.keys), (both.theirs, both.seal_keys)):
        received = server.receive_all(both.requests(both.slots(1)), None)
        found = run(server, one_turn(kind, 1), zero, received, keys)
        assert np.array_equal(both.client.decrypt_all(server.reply_all(found, mask, keys)), mask)
