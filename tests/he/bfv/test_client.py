"""The compiled client beside SEAL's with the same secret key: SEAL reads its requests, and their noise is alike."""

import functools
import math
import os
from dataclasses import dataclass, field

import numpy as np
import pytest
import tenseal.sealapi as seal

from privcirnet.errors import RuleError
from privcirnet.he.bfv import batching, interface
from privcirnet.he.bfv import client as kernel_client
from privcirnet.he.bfv import seal as tenseal
from privcirnet.he.bfv.engines import engine_of
from privcirnet.he.bfv.parameters import (
    NARROW_COEFFICIENT_BITS,
    NARROW_RING_DEGREE,
    WIDE_COEFFICIENT_BITS,
    WIDE_RING_DEGREE,
    Parameters,
    choose,
    key_bytes,
    message_bytes,
    ordered_primes,
)
from privcirnet.he.ring import modular, sampling
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.kernels.rns import ring
from privcirnet.he.rlwe.wire_bytes import SEED_BYTES, WireFormat
from tests.he.pairs import some_places
from tests.he.secrets import Reader, twin, values_of

DEFAULT = choose({1}, 46)
STEPS = (1, 2000)


@dataclass
class Clients:
    """Both clients with one secret key."""

    parameters: Parameters
    ours: kernel_client.KernelClient = field(init=False)
    seals: tenseal.TensealClient = field(init=False)
    reader: Reader = field(init=False)

    def __post_init__(self) -> None:
        self.ours = kernel_client.KernelClient(self.parameters)
        self.seals, self.reader = twin(self.ours), Reader(self.parameters)
        primes = ordered_primes(self.parameters.ring_degree, self.parameters.coefficient_bits)
        self.modulus = WireFormat(primes[:-1], self.n)

    @property
    def n(self) -> int:
        return self.parameters.ring_degree

    def client(self, name: str) -> interface.ClientEngine:
        return {"kernel": self.ours, "tenseal": self.seals}[name]

    def slots(self, count: int) -> Residues:
        return sampling.uniform((count, self.n), self.parameters.plain_modulus)

    def errors(self, name: str) -> list[int]:
        """-(c0 + c1 s) of a fresh encryption of zero, under the first prime."""
        message = self.client(name).encrypt(np.zeros(self.n, dtype=np.uint64))
        (p, *_), own = self.modulus.primes, ring(self.modulus.primes, self.n)
        values = own.values(self.reader.words(message))[:, 0].astype(object)
        phase = (values[0] + values[1] * values_of(self.ours)[0].astype(object)) % p
        polynomial = np.zeros((1, len(self.modulus.primes), self.n), dtype=np.uint64)
        polynomial[0, 0] = phase.astype(np.uint64)
        own.to_coefficients(polynomial)
        return (-modular.centered(polynomial[0, 0], p)).tolist()


@functools.cache
def clients(parameters: Parameters = DEFAULT) -> Clients:
    return Clients(parameters)


ALL = {
    "default": DEFAULT,
    "wide": choose({1}, 60, WIDE_RING_DEGREE, WIDE_COEFFICIENT_BITS),
    "narrow": choose({1}, 28, NARROW_RING_DEGREE, NARROW_COEFFICIENT_BITS),
    "unswitched": choose({1}, 28, 4096, (36, 35, 35)),
    "short": choose({1}, 30),
}
SETS = pytest.mark.parametrize("parameters", ALL.values(), ids=ALL)
CLIENTS = pytest.mark.parametrize("name", ["kernel", "tenseal"])


@functools.cache
def server(name: str, parameters: Parameters) -> interface.ServerEngine:
    return clients(parameters).reader if name == "tenseal" else engine_of(name).server(parameters)


SERVERS = {"kernel": ("kernel", "tenseal"), "tenseal": ("tenseal",)}
"""Which take a client's requests."""


@SETS
@CLIENTS
@pytest.mark.parametrize("some", [False, True], ids=["whole", "kept"])
def test_replies_to_requests(parameters: Parameters, name: str, some: bool) -> None:
    """Both clients decrypt every reply to the same words, and to what was encrypted where it was kept."""
    both, t = clients(parameters), parameters.plain_modulus
    slots, addends = both.slots(3), both.slots(3)
    kept = some_places(both.n, 3) if some else None
    messages, wanted = both.client(name).encrypt_all(slots), modular.add(slots, addends, t)
    for own in SERVERS[name]:
        engine, keys = server(own, parameters), both.client(own).public_keys([])
        found = engine.receive_all(messages, None)
        replies = engine.reply_all(found, addends, engine.load_keys(keys, []), kept)
        decrypted = [client.decrypt_all(replies, kept) for client in (both.ours, both.seals)]
        assert np.array_equal(*decrypted)
        for place, pair in zip(kept or [slice(None)] * 3, zip(decrypted[0], wanted, strict=True), strict=True):
            first, second = (batching.slots_to_coefficients(one, t)[place] for one in pair)
            assert np.array_equal(first, second)


@pytest.mark.slow
@CLIENTS
def test_requests_hold_what_is_kept(name: str) -> None:
    """Of a plaintext in a subring: the coefficients that are not sent are zero but for noise."""
    both, n, t = clients(), DEFAULT.ring_degree, DEFAULT.plain_modulus
    kept = [np.arange(0, n, step) for step in (2, 8)]
    polynomials = np.zeros((2, n), dtype=np.uint64)
    for row, place in zip(polynomials, kept, strict=True):
        row[place] = sampling.uniform((place.size,), t)
    slots = batching.coefficients_to_slots(polynomials, t)
    messages = both.client(name).encrypt_all(slots, kept)
    for own in SERVERS[name]:
        engine, keys = server(own, DEFAULT), both.client(own).public_keys([])
        received = engine.receive_all(messages, None, kept)
        replies = engine.reply_all(received, np.zeros_like(slots), engine.load_keys(keys, []), kept)
        found = batching.slots_to_coefficients(both.ours.decrypt_all(replies, kept), t)
        for row, other, place in zip(found, polynomials, kept, strict=True):
            assert np.array_equal(row[place], other[place])


@pytest.mark.parametrize(("name", "other"), [("kernel", "tenseal"), ("tenseal", "kernel")])
@pytest.mark.parametrize("steps", [(), STEPS])
def test_keys_of_another_engine_are_refused(name: str, other: str, steps: tuple[int, ...]) -> None:
    """By their length: seeds have others."""
    keys = clients().client(name).public_keys(steps)
    with pytest.raises(RuleError, match=r"the engine and .* fix: got \d+ bytes .* use the same version and engine"):
        server(other, DEFAULT).load_keys(keys, steps)


@SETS
def test_seal_decrypts_fresh_ciphertexts_and_finds_as_much_noise_as_in_its_own(parameters: Parameters) -> None:
    both, budgets = clients(parameters), dict[str, list[int]]()
    for name in ("kernel", "tenseal"):
        slots = both.slots(5)
        for own, message in zip(slots, both.client(name).encrypt_all(slots), strict=True):
            ciphertext, plaintext = both.reader.receive(message), seal.Plaintext()
            both.seals._decryptor.decrypt(ciphertext, plaintext)
            assert np.array_equal(np.array(both.seals._context.encoder.decode_uint64(plaintext), np.uint64), own)
            budgets.setdefault(name, []).append(both.seals._decryptor.invariant_noise_budget(ciphertext))
    assert abs(np.median(budgets["kernel"]) - np.median(budgets["tenseal"])) <= 1


@CLIENTS
def test_errors_of_fresh_ciphertexts_are_binomial(name: str) -> None:
    """Of 42 bits. Mean, variance, kurtosis and chi-square, each within six deviations or more; none over 21."""
    values = np.array([clients().errors(name) for _ in range(8)]).ravel()
    count, deviation = values.size, math.sqrt(10.5)
    assert abs(values).max() <= 21
    assert abs(values.mean()) < 6 * deviation / math.sqrt(count)
    assert abs(values.var() / 10.5 - 1) < 6 * math.sqrt(2 / count)
    kurtosis = ((values - values.mean()) ** 4).mean() / values.var() ** 2
    assert abs(kurtosis - (3 - 2 / 42)) < 6 * math.sqrt(24 / count)
    expected = {v: count * math.comb(42, 21 + v) / 2**42 for v in range(-11, 12)}
    found = {v: int((values == v).sum()) for v in expected}
    assert sum((found[v] - mean) ** 2 / mean for v, mean in expected.items()) < 23 + 10 * math.sqrt(46)


@CLIENTS
def test_both_polynomials_look_uniform(name: str) -> None:
    """256 intervals under each prime, of 16 ciphertexts of one plaintext: ten deviations of chi-square."""
    both, slots = clients(), np.zeros((16, DEFAULT.ring_degree), dtype=np.uint64)
    words = np.stack([both.reader.words(message) for message in both.client(name).encrypt_all(slots)])
    for polynomial in range(2):
        for limb, p in enumerate(both.modulus.primes):
            parts = words[:, polynomial, limb].astype(np.float64).ravel() / p * 256
            counts = np.bincount(parts.astype(np.int64), minlength=256)
            mean = parts.size / 256
            assert ((counts - mean) ** 2 / mean).sum() < 255 + 10 * math.sqrt(510)


def test_nothing_random_is_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every ciphertext and every digit asks the operating system for a seed and a stream's key; the key is not sent."""
    asked, original = [], os.urandom
    monkeypatch.setattr(os, "urandom", lambda size: asked.append(original(size)) or asked[-1])
    client = kernel_client.KernelClient(DEFAULT)
    keys = client.public_keys(STEPS)
    messages = client.encrypt_all(np.zeros((4, DEFAULT.ring_degree), dtype=np.uint64))
    size, start = key_bytes(DEFAULT) // 3, message_bytes(DEFAULT)[0]
    digits = [keys[start + i * size :][:size] for i in range(3 * len(STEPS))]
    sent = [message[-SEED_BYTES:] for message in (keys[:start], *digits, *messages)]
    assert len(sent) == 11
    assert [*map(len, asked)] == 23 * [SEED_BYTES]
    assert len(set(asked)) == len(asked)
    secret = {*asked} - {*sent}
    assert len(secret) == 12
    assert not any(own in keys or any(own in message for message in messages) for own in secret)
