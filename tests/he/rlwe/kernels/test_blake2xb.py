"""The words of a seed: as SEAL expands them, and what becomes of words that a prime rejects."""

import functools
import hashlib
import itertools
import struct
from pathlib import Path

import numpy as np
import pytest
import tenseal.sealapi as seal

from privcirnet.errors import RuleError
from privcirnet.he.circuits.bfv import seal as tenseal
from privcirnet.he.ring import sampling
from privcirnet.he.rlwe.kernels import blake2xb
from privcirnet.he.schemes.bfv import sealfile
from privcirnet.he.schemes.bfv.parameters import choose
from tests.he.kernel_oracles import prime_under

SEED = bytes(range(7, 71))
MASK = (1 << 64) - 1
LITERALS = {"medium": (8192, (54, 54, 53, 53)), "wide": (16384, (48, 48, 48, 48, 49)), "widest": (16384, (60,) * 4)}


def uniform(words: list[int], primes: tuple[int, ...], ring_degree: int) -> list[list[int]]:
    """SEAL's ``sample_poly_uniform`` on the words of a stream."""
    following = iter(words[len(primes) * ring_degree :])
    rows = []
    for j, p in enumerate(primes):
        limit = MASK - MASK % p - 1
        row = words[j * ring_degree : (j + 1) * ring_degree]
        rows.append([next(w for w in itertools.chain([word], following) if w < limit) % p for word in row])
    return rows


def test_a_long_stream_begins_like_a_short_one() -> None:
    long, (roots,) = blake2xb.stream(SEED, 70 * 512 - 1), blake2xb.roots([SEED], 70 * 512 - 1)
    assert (len(long), len(roots)) == (70 * 512 - 1, 70)
    assert (long[:1000] == blake2xb.stream(SEED, 1000)).all()
    assert (long == blake2xb.stream(SEED, 70 * 512)[:-1]).all()
    root = hashlib.blake2b((69).to_bytes(8, "little"), key=SEED, node_offset=4096 << 32).digest()
    assert roots[69].tobytes() == root


def test_a_seed_has_64_bytes() -> None:
    assert blake2xb.stream(SEED, 0).shape == (0,)
    cases = {
        "63": lambda: blake2xb.stream(SEED[1:], 8),
        "65": lambda: blake2xb.expand([SEED, SEED + b"0"], (97,), 8),
    }
    for got, made in cases.items():
        with pytest.raises(RuleError, match=rf"a seed must have 64 bytes: got {got};"):
            made()


@pytest.mark.parametrize("ring_degree", [8, 512, 1000])
def test_rejected_words_give_way_to_the_next_of_the_stream(ring_degree: int) -> None:
    """Primes that reject up to a third of the words, with and without a rest of the last buffer."""
    primes = tuple(prime_under(2**64 / fraction, 8) for fraction in (8.9, 8.5, 17.9))
    words = blake2xb.stream(SEED, 8192).tolist()
    assert blake2xb.expand([SEED], primes, ring_degree)[0].tolist() == uniform(words, primes, ring_degree)


def test_the_largest_residues() -> None:
    """Words on both sides of the bound, given to the kernel itself."""
    p = prime_under(2**64 / 17.9, 8)
    limit = MASK - MASK % p - 1
    for word, expected in ((0, 0), (p - 1, p - 1), (p, 0), (limit - 1, (limit - 1) % p), (limit, 5), (MASK, 5)):
        row = np.array([[word]], dtype=np.uint64)
        assert blake2xb.reduce(row, blake2xb.bounds((p,)), np.array([5], dtype=np.uint64))
        assert row[0, 0] == expected
    assert not blake2xb.reduce(np.array([[MASK]], np.uint64), blake2xb.bounds((p,)), np.array([MASK], np.uint64))


@functools.cache
def engines(name: str) -> tuple[tenseal.TensealClient, tenseal.TensealServer]:
    degree, bits = LITERALS[name]
    parameters = choose({1}, 30, degree, bits)
    return tenseal.TensealClient(parameters), tenseal.TensealServer(parameters)


@pytest.mark.parametrize("name", LITERALS)
def test_ciphertexts_as_seal_expands_them(name: str) -> None:
    client, server = engines(name)
    level = server._context.data_level
    message = client.encrypt(sampling.uniform((level.ring_degree,), 1000))
    words, _ = sealfile._words(server._context.save(server.receive(message)), level)
    assert (blake2xb.expand([message[-64:]], level.primes, level.ring_degree)[0] == words[1]).all()


@pytest.mark.parametrize("name", LITERALS)
def test_galois_keys_as_seal_expands_them(name: str) -> None:
    client, server = engines(name)
    level = server._context.key_level
    message = client.public_keys([1])
    files = key_files(server._context.save(server.load_keys(message, [1]).switches[3]))
    size = level.compact_size(1) + 64
    assert len(files) == len(level.primes) - 1
    for digit, file in enumerate(files):
        end = server._context.data_level.compact_size(1) + 64 + (digit + 1) * size
        words, _ = sealfile._words(file, level)
        assert (blake2xb.expand([message[end - 64 : end]], level.primes, level.ring_degree)[0] == words[1]).all()


def key_files(payload: bytes) -> list[bytes]:
    """The payloads of all digits of full Galois keys."""
    position, files = 40, []
    while position < len(payload):
        (count,) = struct.unpack_from("<Q", payload, position)
        position += 8
        for _ in range(count):
            (size,) = struct.unpack_from("<Q", payload, position + 8)
            files.append(payload[position + 16 : position + size])
            position += size
    return files


def test_rejected_words_as_seal_replaces_them(tmp_path: Path) -> None:
    """SEAL with primes far under a power of two, which reject one word in 20: its own primes reject none."""
    n = 1024
    primes = tuple(prime_under(2**64 / fraction, n) for fraction in (17.9, 17.8, 17.7))
    literal = seal.EncryptionParameters(seal.SCHEME_TYPE.BFV)
    literal.set_poly_modulus_degree(n)
    literal.set_coeff_modulus([seal.Modulus(p) for p in primes])
    literal.set_plain_modulus(12289)
    context = seal.SEALContext(literal, True, seal.SEC_LEVEL_TYPE.NONE)
    encryptor = seal.Encryptor(context, seal.KeyGenerator(context).secret_key())
    file = str(tmp_path / "ciphertext")
    encryptor.encrypt_symmetric(seal.Plaintext("1")).save(file)
    seed = sealfile.unwrap(Path(file).read_bytes())[-64:]
    ciphertext = seal.Ciphertext(context)
    ciphertext.load(context, file)
    ciphertext.save(file)
    level = sealfile.Level(primes[:2], n, (0, 0, 0, 0), (4, 0))
    words, _ = sealfile._words(sealfile.unwrap(Path(file).read_bytes()), level)
    made = blake2xb.expand([SEED, seed], primes[:2], n)[1]
    assert (made == words[1]).all()
    plain = blake2xb.stream(seed, 2 * n).reshape(2, n) % np.array(primes[:2], dtype=np.uint64)[:, None]
    assert (made != plain).sum() > 50
