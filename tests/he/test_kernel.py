"""The compiled engine beside SEAL, bit for bit where it computes the same, and by slots and noise where it does not."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import tenseal.sealapi as seal
from hypothesis import given, settings
from hypothesis import strategies as st

from privcirnet.he import cleartext, kernel, modular, ntt, params, sealfile, tenseal
from privcirnet.he.circuit import Circuit, Pair
from privcirnet.he.kernels import galois
from privcirnet.he.kernels.hiding import Draws
from privcirnet.he.modular import Integers, Residues
from privcirnet.he.params import Parameters
from privcirnet.he.protocol import shares
from tests.he.circuits import circuits, inputs_of, random_weights

DEFAULT = params.choose({1}, 46)
WIDE = params.choose({1}, 60, params.WIDE_RING_DEGREE, params.WIDE_COEFFICIENT_BITS)
NARROW = params.choose({1}, 23, 4096, (37, 36, 36))
"""Its replies keep two of two data primes: nothing is switched."""

STEPS = (1, 2, 256, 3000, 4095)


@dataclass
class Engines:
    """One client, and both servers with its keys."""

    parameters: Parameters
    steps: tuple[int, ...]
    client: tenseal.Client = field(init=False)
    ours: kernel.Server = field(init=False)
    theirs: tenseal.Server = field(init=False)
    clear: cleartext.Server = field(init=False)

    def __post_init__(self) -> None:
        self.client = tenseal.Client(self.parameters)
        self.ours, self.theirs = kernel.Server(self.parameters), tenseal.Server(self.parameters)
        self.clear = cleartext.Server(self.parameters)
        message = self.client.public_keys(self.steps)
        self.keys, self.seal_keys = (server.load_keys(message, self.steps) for server in (self.ours, self.theirs))

    def slots(self, count: int) -> Residues:
        return shares.uniform((count, self.parameters.ring_degree), self.parameters.plain_modulus)

    def requests(self, slots: Residues) -> list[bytes]:
        return [self.client.encrypt(own) for own in slots]

    def coefficients(self, found: kernel.Ciphertext) -> Residues:
        """Coefficients of one of the kernel engine's ciphertexts, (2, L, n)."""
        if not found.ntt:
            return found.residues
        residues = galois.divided(found.residues, self.ours._extended)
        self.ours._ring.to_coefficients(residues)
        return residues

    def seal_coefficients(self, found: Any) -> Residues:
        """The same of one of SEAL's."""
        context = self.theirs._context
        return sealfile._words(context.save(found), context.data_level)[0]

    def loaded(self, found: kernel.Ciphertext) -> Any:
        """One of the kernel engine's ciphertexts as SEAL's."""
        context = self.client._context
        payload = sealfile._payload(self.coefficients(found), context.data_level, b"", ntt=False)
        return context.load(seal.Ciphertext(context.seal), payload)

    def decrypted(self, found: kernel.Ciphertext) -> Residues:
        plaintext = seal.Plaintext()
        self.client._decryptor.decrypt(self.loaded(found), plaintext)
        return np.array(self.client._context.encoder.decode_uint64(plaintext), dtype=np.uint64)

    def same(self, found: Sequence[kernel.Ciphertext], wanted: Sequence[Any]) -> bool:
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


def run(server: Any, circuit: Circuit, weights: Residues, received: Any, keys: Any) -> Any:
    return server.evaluate(circuit, server.encode_weights(circuit, weights), received, keys)


@settings(max_examples=8)
@given(circuits(), st.integers(0, 99))
def test_products_and_sums_are_seal_s(circuit: Circuit, seed: int) -> None:
    both = engines()
    messages = both.requests(both.slots(inputs_of(circuit)))
    weights = random_weights(circuit, both.parameters.ring_degree, both.parameters.plain_modulus, seed)
    found = run(both.ours, circuit, weights, both.ours.receive_all(messages, None), both.keys)
    assert both.same(found, run(both.theirs, circuit, weights, both.theirs.receive_all(messages, None), both.seal_keys))


@SETS
def test_slot_wise_products_are_seal_s(parameters: Parameters) -> None:
    both = engines(parameters, ())
    messages, factors = both.requests(both.slots(3)), both.slots(3)
    found, wanted = (
        server.multiply_all(server.receive_all(messages, None), factors) for server in (both.ours, both.theirs)
    )
    assert both.same(found, wanted)
    assert both.ours.counts["pmult"] >= 3


@pytest.fixture
def nothing_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """All randomness of replies is zero."""

    def zeros(noise_bits: int, ring: Any, replies: int) -> Draws:
        return Draws(*(np.zeros((len(ring.primes), replies * ring.degree), dtype=np.uint64) for _ in Draws._fields))

    monkeypatch.setattr(kernel, "draw", zeros)


def bare_replies(
    server: tenseal.Server, found: Sequence[Any], addends: Residues, kept: Sequence[Integers] | None
) -> list[bytes]:
    """SEAL's replies without anything that hides."""
    level, context = server._context.reply_level, server._context
    masked = [server.add_plain(own, server.encode(slots)) for own, slots in zip(found, addends, strict=True)]
    switched = [server._apply(server._evaluator.mod_switch_to, own, list(level.parms_id)) for own in masked]
    places = kept or [None] * len(switched)
    return [sealfile.compact_reply(context.save(own), level, p) for own, p in zip(switched, places, strict=True)]


def some_places(n: int, count: int) -> list[Integers]:
    """Ascending positions for some replies, of different numbers."""
    random = np.random.default_rng(5)
    return [np.unique(np.append(random.integers(0, n, 50 * (number + 1)), [0, n - 1])) for number in range(count)]


@SETS
@pytest.mark.parametrize("some", [False, True], ids=["whole", "kept"])
def test_masks_switches_and_bytes_are_seal_s(parameters: Parameters, some: bool, nothing_hidden: None) -> None:
    """Seven replies: more than are made together."""
    both, count = engines(parameters, ()), 7
    messages, addends = both.requests(both.slots(count)), both.slots(count)
    kept = some_places(parameters.ring_degree, count) if some else None
    found = both.ours.reply_all(both.ours.receive_all(messages, None), addends, both.keys, 7, kept)
    assert found == bare_replies(both.theirs, both.theirs.receive_all(messages, None), addends, kept)


@pytest.mark.parametrize(("parameters", "kept"), [(DEFAULT, 2), (WIDE, 2), (NARROW, 2)])
def test_replies_keep_these_primes(parameters: Parameters, kept: int) -> None:
    assert kernel.Server(parameters)._reply_primes == kept


def test_results_of_products_are_replied_as_seal_s(nothing_hidden: None) -> None:
    both = engines(DEFAULT, ())
    messages, factors, addends = both.requests(both.slots(2)), both.slots(2), both.slots(2)
    own, other = (
        server.multiply_all(server.receive_all(messages, None), factors) for server in (both.ours, both.theirs)
    )
    assert both.ours.reply_all(own, addends, both.keys, 7) == bare_replies(both.theirs, other, addends, None)


def clear_run(both: Engines, circuit: Circuit, weights: Residues, slots: Residues) -> list[Residues]:
    """The slots of a circuit's outputs by the clear-text twin."""
    received = [both.clear.receive(own.astype("<u8").tobytes()) for own in slots]
    return [found.values for found in run(both.clear, circuit, weights, received, frozenset(STEPS))]


@settings(max_examples=10)
@given(circuits(steps=(0, *STEPS)), st.integers(0, 99))
def test_any_circuit_has_its_clear_text_twin_s_slots_and_counts(circuit: Circuit, seed: int) -> None:
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


def one_turn(kind: str, step: int) -> Circuit:
    """One product and one rotation: of the input, of the product, or of the product and added to it."""
    baby, giant, fold = ((step if kind == own else 0) for own in ("baby", "giant", "fold"))
    return Circuit(((0, baby),), (((0, 0),),), (((0, giant),),), ((fold,) if fold else (),), 1)


def outcomes(both: Engines, circuit: Circuit) -> tuple[kernel.Ciphertext, Any, Residues]:
    """(kernel's, SEAL's, clear text's) only output."""
    slots, weights = both.slots(inputs_of(circuit)), both.slots(circuit.weights)
    messages = both.requests(slots)
    (own,) = run(both.ours, circuit, weights, both.ours.receive_all(messages, None), both.keys)
    (other,) = run(both.theirs, circuit, weights, both.theirs.receive_all(messages, None), both.seal_keys)
    (wanted,) = clear_run(both, circuit, weights, slots)
    return own, other, wanted


KINDS = pytest.mark.parametrize("kind", ["baby", "giant", "fold"])


@KINDS
@pytest.mark.parametrize("step", STEPS)
def test_rotations_turn_slots_as_in_clear_text(kind: str, step: int) -> None:
    own, _, wanted = outcomes(engines(), one_turn(kind, step))
    assert np.array_equal(engines().decrypted(own), wanted)


@KINDS
@pytest.mark.parametrize("parameters", [DEFAULT, WIDE], ids=["default", "wide"])
def test_rotations_make_as_much_noise_as_seal_s(kind: str, parameters: Parameters) -> None:
    both = engines(parameters, STEPS if parameters == DEFAULT else (3000,))
    own, other, wanted = outcomes(both, one_turn(kind, 3000))
    budget = both.client._decryptor.invariant_noise_budget
    assert abs(budget(both.loaded(own)) - budget(other)) <= 2
    assert np.array_equal(both.decrypted(own), wanted)


def extreme_plaintext(n: int, t: int) -> Residues:
    """Slots whose polynomial's coefficients are as large as can be, of both signs."""
    random = np.random.default_rng(0)
    return ntt.coefficients_to_slots(random.choice(np.array([t // 2, t // 2 + 1], dtype=np.uint64), n), t)


def test_largest_values() -> None:
    """All slots t - 1, coefficients around t / 2, 64 products of turned inputs to a sum, the largest t for that."""
    bits = params.largest_plain_bits(8192, params.DEFAULT_COEFFICIENT_BITS, 64)
    both = engines(params.choose({1}, bits))
    n, t = both.parameters.ring_degree, both.parameters.plain_modulus
    turned = tuple((source, step) for source in range(11) for step in (0, *STEPS))[:64]
    circuit = Circuit(turned, (tuple((number, number % 2) for number in range(64)),), (((0, 256),),), ((),), 2)
    slots = np.full((11, n), t - 1, dtype=np.uint64)
    weights = np.stack([slots[0], extreme_plaintext(n, t)])
    received = both.ours.receive_all(both.requests(slots), slots)
    (found,) = run(both.ours, circuit, weights, received, both.keys)
    (wanted,) = clear_run(both, circuit, weights, modular.add(slots, slots, t))
    assert np.array_equal(both.decrypted(found), wanted)
    noise = params.noise_bits(n, bits, 64)
    (reply,) = both.ours.reply_all([found], slots[:1], both.keys, noise)
    assert np.array_equal(both.client.decrypt(reply), modular.add(wanted, slots[0], t))


@pytest.mark.parametrize(("turned", "block"), [(1, 1), (3, 2), (1000, 1000)])
def test_results_do_not_depend_on_the_limits(monkeypatch: pytest.MonkeyPatch, turned: int, block: int) -> None:
    both, n, t = engines(), DEFAULT.ring_degree, DEFAULT.plain_modulus
    circuit = several_pieces(4)
    weights, messages = random_weights(circuit, n, t, 1), both.requests(both.slots(4))

    def results() -> list[kernel.Ciphertext]:
        return run(both.ours, circuit, weights, both.ours.receive_all(messages, None), both.keys)

    wanted = results()
    monkeypatch.setattr(kernel, "_TURNED", turned)
    monkeypatch.setattr(kernel, "_BLOCK", block)
    segments = both.ours.encode_weights(circuit, weights).segments
    assert (len(segments), len(segments[0].blocks)) == {1: (4, 2), 3: (2, 4), 1000: (1, 1)}[turned]
    for own, other in zip(results(), wanted, strict=True):
        assert np.array_equal(own.residues, other.residues)


def several_pieces(pieces: int) -> Circuit:
    """Pieces that share nothing, each of two turned inputs, three inner sums and two outputs."""
    turned: list[Pair] = []
    sums: list[tuple[Pair, ...]] = []
    outputs: list[tuple[Pair, ...]] = []
    for piece in range(pieces):
        first, number = len(turned), len(sums)
        turned += [(piece, 0), (piece, 256)]
        sums += [((first, 1), (first + 1, 2)), ((first, 3),), ((first, 2), (first + 1, 0))]
        outputs += [((number, 0), (number + 1, 2)), ((number + 2, 0),)]
    return Circuit(tuple(turned), tuple(sums), tuple(outputs), ((), (1,)) * pieces, 4)
