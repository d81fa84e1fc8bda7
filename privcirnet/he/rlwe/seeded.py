"""The one reader of ciphertexts and key digits whose second polynomial is a seed: checked before anything uses them."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.rlwe.kernels import receive
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
        receive.receive(residues, messages[index], places[index], modulus)
        return use(index, residues)

    return each(load, range(len(messages)))


def read_one(message: Message, modulus: WireFormat) -> Residues:
    """Return the residues of a message, shape (2, L, n); see :func:`read`.

    Args:
        message: compact bytes of the first polynomial, then the seed of the second.
        modulus: L primes.
    """
    return read([message], modulus, lambda _, residues: residues)[0]
