"""Switch keys: made by the client from its secret key, and read by the server.

Digit d of a key from s' to s is (-(a s + e) + [under the primes of digit d: P s'], a) under the data primes of what it
switches, and the special primes, with a from a seed that is sent in its place. A key serves all shorter moduli, too.

An automorphism's key switches g(s) to s. On the wire its values stand in the kernel's order with g^-1 applied, as
products need them.

:func:`read` is the one reader of ciphertexts and key digits whose second polynomial is a seed: they are checked before
anything uses them.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.ring.sampling import wipe
from privcirnet.he.rlwe.kernels import rns, secret_key, uniform, wire_bytes
from privcirnet.he.rlwe.key_switching import ModulusChain
from privcirnet.he.rlwe.parameters import RELINEARIZATION, missing_key
from privcirnet.he.rlwe.wire_bytes import Message, WireFormat, check_length
from privcirnet.he.system.threads import each

T = TypeVar("T")


def read(
    messages: Sequence[Message],
    modulus: WireFormat,
    use: Callable[[int, Residues], T],
    sent: Sequence[Integers] | None = None,
) -> list[T]:
    """Read messages and use what is in them, on all threads.

    Args:
        messages: compact bytes of a first polynomial, then the seed of the second, for each.
        modulus: L primes.
        use: called with the number of a message and its residues, shape (2, L, n), in the order in which they travel.
        sent: ascending coefficients that each message holds, the others being zero; None: all of them.

    Returns:
        what the calls returned.

    Raises:
        RuleError: a length is wrong, or a residue is not under its prime.
    """
    places = sent or [np.arange(modulus.ring_degree)] * len(messages)
    for message, place in zip(messages, places, strict=True):
        check_length(message, modulus.seeded_size(len(place)))
    shape = 2, len(modulus.primes), modulus.ring_degree

    def load(index: int) -> T:
        residues = np.empty(shape, dtype=np.uint64)
        uniform.receive(residues, messages[index], places[index], modulus)
        return use(index, residues)

    return each(load, range(len(messages)))


def read_one(message: Message, modulus: WireFormat) -> Residues:
    """Return the residues of a message, shape (2, L, n); see :func:`read`.

    Args:
        message: compact bytes of the first polynomial, then the seed of the second.
        modulus: L primes.
    """
    return read([message], modulus, lambda _, residues: residues)[0]


class KeySwitchingKeys(dict[int, Residues]):
    """Switch keys by name (:mod:`rlwe.parameters`): inputs of products, shape (chunks, D, 2, CHUNK)."""

    def __missing__(self, name: int) -> Residues:
        """Raise: there is none.

        Raises:
            RuleError: always.
        """
        raise missing_key([name])


def make(chain: ModulusChain, count: int, source: Residues, target: Residues) -> bytes:
    """Return a switch key.

    Args:
        chain: chain of primes.
        count: data primes of what is switched with it.
        source: s' under all primes, secret, shape (R, n).
        target: s and its quotients under all primes, secret, shape (2, R, n).
    """
    return _made(chain, count, source, target, np.arange(chain.parameters.ring_degree))


def make_named(chain: ModulusChain, count: int, secret: Residues, name: int) -> bytes:
    """Return the key of an automorphism, or the one that switches the square of the secret to it.

    Args:
        chain: chain of primes.
        count: data primes of what is switched with it.
        secret: s and its quotients under all primes, shape (2, R, n).
        name: see :mod:`rlwe.parameters`.
    """
    if name != RELINEARIZATION:
        return _made(chain, count, secret[0], secret, chain.order(name))
    square = np.empty_like(secret[0])
    for limb in range(len(square)):
        residues = secret[0, limb : limb + 1]
        rns.multiply(square[limb : limb + 1], residues, residues[0], chain.ring.moduli, limb)
    key = make(chain, count, square, secret)
    wipe([square])
    return key


def load(chain: ModulusChain, count: int, message: bytes) -> Residues:
    """Return a switch key ready for products: inputs, shape (chunks, D, 2, CHUNK).

    Args:
        chain: chain of primes.
        count: data primes that it was made for.
        message: result of :func:`make` or :func:`make_named`.

    Raises:
        RuleError: the bytes are not such a key.
    """
    return load_all(chain, count, message, 1)[0]


def load_all(chain: ModulusChain, count: int, message: bytes, keys: int) -> list[Residues]:
    """Return keys as :func:`load` does, in one array, whose long pages take less time to look up.

    Args:
        chain: chain of primes.
        count: data primes that they were made for.
        message: all keys, one after the other.
        keys: number of keys.

    Raises:
        RuleError: the bytes are not such keys.
    """
    modulus, digits = chain.parameters.key_modulus(count), len(chain.parameters.digits(count))
    check_length(message, keys * chain.parameters.key_bytes(count))
    inputs = chain.ring.inputs(digits, len(modulus.primes) * keys)
    inputs = inputs.reshape(keys, len(modulus.primes) * chain.ring.chunks, *inputs.shape[1:])
    size = modulus.seeded_size()
    parts = [message[first : first + size] for first in range(0, len(message), size)]
    read(parts, modulus, lambda index, residues: chain.place(inputs[index // digits], index % digits, residues))
    return list(inputs)


def _made(chain: ModulusChain, count: int, source: Residues, target: Residues, turned: Integers) -> bytes:
    """Return all digits of a key, of s' with its values turned; on the wire they are turned back."""
    modulus, n = chain.parameters.key_modulus(count), chain.parameters.ring_degree

    def digit(part: range) -> bytes:
        drawn = secret_key.draw(n)
        words = uniform.expanded(drawn.seed, modulus)
        form = secret_key.KeyDigitPlan(part.start, part.stop, count, turned)
        secret_key.digit(words, source, target, drawn.error, form, chain.ring)
        wipe([drawn.error])
        return wire_bytes.pack(words, modulus.bits) + drawn.seed

    return b"".join(each(digit, chain.parameters.digits(count)))
