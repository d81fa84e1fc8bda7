"""Switch keys: what the client makes of its secret key, and how the server reads it.

Digit d of a key from s' to s is (-(a s + e) + [under the primes of digit d: P s'], a) under the data primes of what it
switches, and the special primes, with a from a seed that is sent in its place. A key serves all shorter moduli, too.

An automorphism's key switches g(s) to s. On the wire its values stand in the kernel's order with g^-1 applied, as
products need them, or in SEAL's order.
"""

from collections.abc import Sequence

import numpy as np

from privcirnet.he.ring.kernels import ntt
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.ring.wipe import wipe
from privcirnet.he.rlwe.chain import Chain
from privcirnet.he.rlwe.kernels import receive, rows, secret_key, wire_bytes
from privcirnet.he.rlwe.key_names import RELINEARIZATION, missing_key
from privcirnet.he.rlwe.seeded import read
from privcirnet.he.rlwe.wire_bytes import check_length
from privcirnet.he.system.threads import each


class SwitchKeys(dict[int, Residues]):
    """Switch keys by name (:mod:`rlwe.key_names`): inputs of products, shape (chunks, D, 2, CHUNK)."""

    def __missing__(self, name: int) -> Residues:
        """Raise: there is none.

        Raises:
            RuleError: always.
        """
        raise missing_key([name])


def make(chain: Chain, count: int, source: Residues, target: Residues) -> bytes:
    """Return a switch key.

    Args:
        chain: of primes.
        count: data primes of what is switched with it.
        source: s' under all primes, secret, shape (R, n).
        target: s and its quotients under all primes, secret, shape (2, R, n).
    """
    same = np.arange(chain.parameters.ring_degree)
    return _made(chain, count, source, target, same, same)


def make_named(chain: Chain, count: int, secret: Residues, name: int, *, seal: bool = False) -> bytes:
    """Return the key of an automorphism, or the one that switches the square of the secret to it.

    Args:
        chain: of primes.
        count: data primes of what is switched with it.
        secret: s and its quotients under all primes, shape (2, R, n).
        name: see :mod:`rlwe.key_names`.
        seal: whether values of an automorphism's key stand in SEAL's order.
    """
    if name != RELINEARIZATION:
        turned = chain.order(name)
        return _made(chain, count, secret[0], secret, turned, ntt.kernel_order(len(turned)) if seal else turned)
    square = np.empty_like(secret[0])
    for limb in range(len(square)):
        own = secret[0, limb : limb + 1]
        rows.multiply(square[limb : limb + 1], own, own[0], chain.ring.moduli, limb)
    made = make(chain, count, square, secret)
    wipe([square])
    return made


def load(chain: Chain, count: int, message: bytes) -> Residues:
    """Return a switch key ready for products: inputs, shape (chunks, D, 2, CHUNK).

    Args:
        chain: of primes.
        count: data primes that it was made for.
        message: from :func:`make`, or :func:`make_named` in the kernel's order.

    Raises:
        RuleError: the bytes are not such a key.
    """
    return _loaded(chain, count, [message], [None])[0]


def load_seal(chain: Chain, message: bytes, elements: Sequence[int]) -> list[Residues]:
    """Return the keys of automorphisms whose values stand in SEAL's order, each as :func:`load` does.

    Args:
        chain: of primes.
        message: all keys, one after the other, for all data primes.
        elements: g of each.

    Raises:
        RuleError: the bytes are not such keys.
    """
    count, n = len(chain.parameters.data_primes), chain.parameters.ring_degree
    size = chain.parameters.key_bytes(count)
    parts = [message[number * size :][:size] for number in range(len(elements))]
    order = ntt.kernel_order(n)
    return _loaded(chain, count, parts, [order[np.argsort(chain.order(element))] for element in elements])


def _loaded(chain: Chain, count: int, messages: list[bytes], orders: Sequence[Integers | None]) -> list[Residues]:
    """Keys, each with its values taken from some places; in one array, whose long pages take less time to look up."""
    modulus = chain.parameters.key_modulus(count)
    for message in messages:
        check_length(message, chain.parameters.key_bytes(count))
    size, digits = modulus.seeded_size(), len(chain.parameters.digits(count))
    inputs = chain.ring.inputs(digits, len(modulus.primes) * len(messages))
    inputs = inputs.reshape(len(messages), len(modulus.primes) * chain.ring.chunks, *inputs.shape[1:])

    def place(index: int, residues: Residues) -> None:
        key, digit = divmod(index, digits)
        order = orders[key]
        own = residues if order is None else np.ascontiguousarray(residues[..., order])
        chain.place(inputs[key], digit, own)

    parts = [message[first : first + size] for message in messages for first in range(0, len(message), size)]
    read(parts, modulus, place)
    return list(inputs)


def _made(chain: Chain, count: int, source: Residues, target: Residues, turned: Integers, places: Integers) -> bytes:
    """All digits of a key, of s' with its values turned; value i stands at a place on the wire."""
    modulus, n = chain.parameters.key_modulus(count), chain.parameters.ring_degree

    def digit(own: range) -> bytes:
        drawn = secret_key.draw(n)
        words = receive.expanded(drawn.seed, modulus)
        form = secret_key.Digit(own.start, own.stop, count, turned, places)
        secret_key.digit(words, source, target, drawn.error, form, chain.ring)
        wipe([drawn.error])
        return wire_bytes.pack(words, modulus.widths) + drawn.seed

    return b"".join(each(digit, chain.parameters.digits(count)))
