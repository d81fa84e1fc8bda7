"""The server: operations on ciphertexts with the client's keys, and the noise that hides its reply.

Lengths and residues of keys and ciphertexts are checked before anything computes on them. A rotation by g of (c0, c1)
is g((c0, 0) + a / P), where a switches c1 from s to g^-1(s): digits belong to a ciphertext, not to a rotation, and are
made once for all of its rotations (hoisting, Halevi and Shoup, 2018). ModRaise reads a ciphertext of level 0 modulo the
whole chain.

A fresh encryption of zero under the client's public key hides the second polynomial of a reply, in which weights are
linear, as in BFV (:mod:`ring.sampling`). Flooding hides less: the error of a circuit is a part of its values, 2^-20 of
them or so, and noise of 2^40 times that would leave nothing of them. So there is as much as leaves :data:`ANSWER_BITS`.
SECURITY.md says what that is worth.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from privcirnet.errors import RuleError
from privcirnet.he.ckks.context import Context, Names
from privcirnet.he.ckks.parameters import CkksParameters
from privcirnet.he.ring import sampling
from privcirnet.he.ring.kernels import base_conversion as conversion
from privcirnet.he.ring.kernels import ntt
from privcirnet.he.ring.kernels.arithmetic import with_quotient
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.sampling import stream, wipe
from privcirnet.he.rlwe import switch_keys
from privcirnet.he.rlwe.kernels import rns, secret_key, wire_bytes
from privcirnet.he.rlwe.key_switching import Ciphertext, ModulusChain
from privcirnet.he.rlwe.parameters import FROM_EPHEMERAL, RELINEARIZATION, TO_EPHEMERAL, check_held, conjugation_element
from privcirnet.he.rlwe.switch_keys import read_one
from privcirnet.he.rlwe.wire_bytes import Message
from privcirnet.he.system.threads import each

Keys = Mapping[int, Residues]
"""Keys by name (:mod:`rlwe.parameters`): D inputs of products, shape (chunks, D, 2, CHUNK)."""


def load_keys(context: Context, message: Message, names: Names) -> Keys:
    """Return a client's keys, checked.

    Args:
        message: result of :meth:`CkksClient.evaluation_keys`.

    Raises:
        RuleError: the length is wrong, or a residue is not under its prime.
    """
    chains = {name: context.key_chain(name, level) for name, level in context.named(names).items()}
    sizes = [chain.parameters.key_bytes(count) for chain, count in chains.values()]
    if len(message) != sum(sizes):
        raise RuleError(
            "evaluation keys must have the length that the parameters and rotations fix",
            got=f"{len(message)} bytes where {sum(sizes)} are due",
            remedy="send keys for exactly the circuit's rotations",
        )
    ends = np.cumsum([0, *sizes]).tolist()
    tasks = [(*chain, message[first:end]) for chain, first, end in zip(chains.values(), ends, ends[1:], strict=False)]
    loaded = each(lambda task: switch_keys.load(task[0], task[1], bytes(task[2])), tasks)
    return dict(zip(chains, loaded, strict=True))


def check_keys(context: Context, names: Collection[int], level: int, keys: Keys) -> None:
    """Raise unless there is a key of every name for a level.

    Raises:
        RuleError: a key is missing, or is for lower levels.
    """
    rows = level + 1 + context.chain.special
    available = [name for name, key in keys.items() if len(key) >= rows * context.ring.chunks]
    check_held(names, available, f" at level {level}")


class CkksServer:
    """The server's evaluation of ciphertexts; ``counts`` adds up the operations by name."""

    def __init__(self, parameters: CkksParameters, counts: Counter[str] | None = None) -> None:
        self.context, self.counts = Context(parameters), Counter[str]() if counts is None else counts
        self.low = CkksServer(parameters.low, self.counts) if parameters.low else None

    def at(self, level: int) -> "CkksServer":
        """Return the server of the keys that serve a level."""
        return self.low if self.low and level <= self.low.context.parameters.levels else self

    def ciphertext(self, residues: Residues) -> Ciphertext:
        """Return a ciphertext under the primes of the keys that serve its level.

        Args:
            residues: shape (2, level + 1, n).
        """
        count = residues.shape[1]
        return Ciphertext(self.at(count - 1).context.chain, residues, count)

    def load_keys(self, message: Message, names: Names) -> Keys:
        """Return a client's keys, checked; see :func:`load_keys`.

        Args:
            message: result of :meth:`CkksClient.evaluation_keys`.
        """
        return load_keys(self.context, message, names)

    def receive(self, message: Message, level: int | None = None) -> Ciphertext:
        """Return a ciphertext, checked (:mod:`rlwe.switch_keys`).

        Args:
            message: result of :meth:`CkksClient.encrypt`.
            level: level that it was encrypted at; None: the top level.
        """
        level = self.context.parameters.levels if level is None else level
        return self.ciphertext(read_one(message, self.context.modulus(level)))

    def reply(self, ciphertext: Ciphertext) -> bytes:
        """Return a result as bytes for :meth:`CkksClient.decrypt`, at level 0."""
        modulus, residues = self.context.modulus(0), self.lower(ciphertext, 0).residues
        return b"".join(wire_bytes.pack(half, modulus.bits) for half in residues)

    def add(self, first: Ciphertext, second: Ciphertext) -> Ciphertext:
        """Return the sum, at the lower of the levels."""
        self.counts["add"] += 1
        lhs, rhs = self.aligned(first, second)
        return lhs.plus(rhs)

    def subtract(self, first: Ciphertext, second: Ciphertext) -> Ciphertext:
        """Return the difference, at the lower of the levels."""
        self.counts["add"] += 1
        lhs, rhs = self.aligned(first, second)
        return self.ciphertext(self.context.subtracted(lhs.residues, rhs.residues))

    def add_plain(self, ciphertext: Ciphertext, slots: npt.ArrayLike) -> Ciphertext:
        """Return ciphertext + plaintext.

        Args:
            slots: shape (n / 2,), or one number for all.

        Raises:
            RuleError: see :meth:`Context.integers`.
        """
        self.counts["add_plain"] += 1
        level = ciphertext.level
        integers = self.context.integers(slots, self.context.parameters.scales[level])
        if integers[1:].any():
            plain = self.context.polynomial(integers, level)
        else:  # a constant's values are all the same
            primes = self.context.parameters.data_primes[: level + 1]
            plain = np.array([[int(integers[0]) % prime] for prime in primes], dtype=np.uint64)
        return ciphertext.plus_plain(plain)

    def combine(self, values: Sequence[Ciphertext], factors: Sequence[float]) -> Ciphertext:
        """Return the sum of numbers times ciphertexts, a level under the lowest of their levels, rescaled once.

        Values of higher levels lose primes, and their scale is made up for in their factor.

        Args:
            factors: real, of each.

        Raises:
            RuleError: no level is left.
        """
        self.counts["pmult"] += len(values)
        parameters, level = self.context.parameters, check_level(min(value.level for value in values))
        unit = parameters.scales[level] * parameters.factors[level]
        whole = [round(f * unit / parameters.scales[v.level]) for v, f in zip(values, factors, strict=True)]
        total = np.zeros_like(values[0].residues[:, : level + 1])

        def row(i: int) -> None:
            prime = parameters.data_primes[i]
            for value, number in zip(values, whole, strict=True):
                constant, quotient = with_quotient(number % prime, prime)
                for half in range(2):
                    rns.add_multiple(total[half, i], value.residues[half, i], constant, quotient, np.uint64(prime))

        each(row, range(level + 1))
        return self.ciphertext(self.context.chain.reduced(total, level))

    def multiply_plain(self, ciphertext: Ciphertext, slots: npt.ArrayLike) -> Ciphertext:
        """Return ciphertext times plaintext, a level lower.

        Args:
            ciphertext: ciphertext of level 1 or more.
            slots: shape (n / 2,), or one number for all.

        Raises:
            RuleError: no level is left; or see :meth:`Context.integers`.
        """
        self.counts["pmult"] += 1
        level = check_level(ciphertext.level)
        plain = self.context.polynomial(self.context.integers(slots, self.context.parameters.factors[level]), level)
        product, ring = np.empty_like(ciphertext.residues), self.context.ring

        def row(i: int) -> None:
            rns.multiply(product[:, i], ciphertext.residues[:, i], plain[i], ring.moduli, i)

        each(row, range(level + 1))
        return self.ciphertext(self.context.chain.reduced(product, level))

    def multiply(self, first: Ciphertext, second: Ciphertext, keys: Keys, gain: float = 1.0) -> Ciphertext:
        """Return the product, relinearised, a level under the lower of the levels.

        Args:
            gain: factor that the slots are multiplied by: that of the level.

        Raises:
            RuleError: no level is left, there is no key, or the gain is not the level's.
        """
        self.counts["multiply"] += 1
        lhs, rhs = self.aligned(first, second)
        level, context, chain = check_level(lhs.level), self.context, self.context.chain
        context.parameters.check_gain(level, gain)
        check_keys(context, {RELINEARIZATION}, level, keys)
        product = np.empty((3, *lhs.residues.shape[1:]), dtype=np.uint64)

        def row(i: int) -> None:
            a, b = lhs.residues[:, i], rhs.residues[:, i]
            rns.tensor(product[:, i], a, b, context.ring.moduli, i)

        each(row, range(level + 1))
        return self.ciphertext(chain.lowered(chain.relinearized(product, keys[RELINEARIZATION]), 1))

    def rotate(self, ciphertext: Ciphertext, step: int, keys: Keys) -> Ciphertext:
        """Return slots rotated to the left.

        Args:
            step: slots, under n / 2, not 0.

        Raises:
            RuleError: there is no key for it.
        """
        self.counts["rotate"] += 1
        return self._turned(ciphertext, self.context.element(step), keys)

    def conjugate(self, ciphertext: Ciphertext, keys: Keys) -> Ciphertext:
        """Return the conjugates of all slots.

        Raises:
            RuleError: there is no key for it.
        """
        self.counts["conjugate"] += 1
        return self._turned(ciphertext, conjugation_element(self.context.parameters.ring_degree), keys)

    def times_i(self, ciphertext: Ciphertext) -> Ciphertext:
        """Return all slots times the imaginary unit: the polynomial times X^(n / 2), whose slots are all i, exactly."""
        context, n = self.context, self.context.parameters.ring_degree
        monomial = (np.arange(n) == n // 2).astype(np.int64)
        plain, product = context.polynomial(monomial, ciphertext.level), np.empty_like(ciphertext.residues)
        for i in range(ciphertext.level + 1):
            rns.multiply(product[:, i], ciphertext.residues[:, i], plain[i], context.ring.moduli, i)
        return self.ciphertext(product)

    def times(self, ciphertext: Ciphertext, factor: int) -> Ciphertext:
        """Return all slots times an integer."""
        return ciphertext.times(factor)

    def raised(self, ciphertext: Ciphertext, keys: Keys) -> Ciphertext:
        """Return a ciphertext at the top level, whose polynomial is that of level 0 plus a multiple of q_0 (ModRaise).

        With an ephemeral secret the ciphertext is under that one in between, so that the multiple is small.

        Raises:
            RuleError: there are no keys to the ephemeral secret and from it.
        """
        return self.ciphertext(raised(self.context, self.lower(ciphertext, 0).residues, keys))

    def lower(self, ciphertext: Ciphertext, level: int) -> Ciphertext:
        """Return a ciphertext at a lower level, with that level's scale: times 1, as a constant, and rescaled once.

        Args:
            level: at most its own.
        """
        if level == ciphertext.level:
            return ciphertext
        parameters = self.context.parameters
        ratio = parameters.scales[level] / parameters.scales[ciphertext.level]
        constant = round(ratio * parameters.data_primes[level + 1])
        product = self.ciphertext(ciphertext.residues[:, : level + 2]).times(constant)
        return self.ciphertext(self.context.chain.reduced(product.made, level + 1))

    def aligned(self, first: Ciphertext, second: Ciphertext) -> tuple[Ciphertext, Ciphertext]:
        """Return two ciphertexts at the lower of their levels."""
        level = min(first.level, second.level)
        return self.lower(first, level), self.lower(second, level)

    def _turned(self, ciphertext: Ciphertext, element: int, keys: Keys) -> Ciphertext:
        check_keys(self.context, {element}, ciphertext.level, keys)
        return ciphertext.turned(element, keys[element])


def check_level(level: int) -> int:
    """Raise unless a ciphertext can be multiplied.

    Returns:
        the level.

    Raises:
        RuleError: it is 0.
    """
    if level < 1:
        raise RuleError("a product must find a level above 0", got="level 0", remedy="use parameters with more levels")
    return level


def raised(context: Context, low: Residues, keys: Keys) -> Residues:
    """Return a ciphertext at the top level, whose polynomial is that of level 0 plus a multiple of q_0.

    Args:
        low: shape (2, 1, n).

    Returns:
        shape (2, L + 1, n).

    Raises:
        RuleError: the parameters have an ephemeral secret, and there are no keys to it and from it.
    """
    if not context.parameters.ephemeral_weight:
        return _lifted(context, low)
    check_keys(context, {FROM_EPHEMERAL}, context.parameters.levels, keys)
    check_held({TO_EPHEMERAL}, keys)
    lifted = _lifted(context, _switched(context.ephemeral, low, keys[TO_EPHEMERAL]))
    return _switched(context.chain, lifted, keys[FROM_EPHEMERAL])


def _lifted(context: Context, low: Residues) -> Residues:
    """Lift polynomials mod q_0, as numbers in [-q_0/2, q_0/2), to all data primes, shape (polynomials, L + 1, n)."""
    (count, _, n), primes = low.shape, context.parameters.data_primes
    constants = conversion.base_conversion(primes[:1], primes)
    lifted, low = np.empty((count, len(primes), n), dtype=np.uint64), low.copy()
    scaled, multiples = np.empty_like(low), np.empty((count, n), dtype=np.int64)

    def row(task: tuple[int, int]) -> None:
        half, i = task
        conversion.convert(lifted[half, i], scaled[half], multiples[half], constants, i)
        ntt.forward(lifted[half, i : i + 1], context.ring.tables, i)

    for half in range(count):
        ntt.inverse(low[half], context.ring.tables, 0)
        conversion.scale(scaled[half], multiples[half], low[half], constants)
    each(row, [(half, i) for half in range(count) for i in range(len(primes))])
    return lifted


def _switched(chain: ModulusChain, residues: Residues, key: Residues) -> Residues:
    """Switch a ciphertext to another secret."""
    switched = chain.switched(chain.digits(residues[1]), key)
    switched[0] = chain.added(switched[0], residues[0])
    return switched


ANSWER_BITS = 8
"""Bits of a slot that flooding leaves: six deviations of its noise are at most 2^-8."""


def flood_bits(parameters: CkksParameters) -> int:
    """Return log2 of the width of each of the three parts of flooding noise, as integers.

    Their sum has a deviation of half of a width in a coefficient, and sqrt(n) times as much in a slot.
    """
    return math.floor(math.log2(parameters.scales[0] / (3 * math.sqrt(parameters.ring_degree))) - ANSWER_BITS)


def flood_reply(context: Context, reply: Ciphertext, public: Ciphertext) -> Ciphertext:
    """Return a reply with a fresh encryption of zero, and flooding noise.

    Args:
        reply: ciphertext of level 0.
        public: the client's public key, an encryption of zero of level 0 whose second polynomial a seed stands for.
    """
    ring, bits = context.ephemeral.ring, flood_bits(context.parameters)
    n, ternary, zero = ring.degree, secret_key.generate(ring), np.empty_like(reply.residues)
    digits, (powers, offset) = sampling.flood_digits(bits, n, stream()), sampling.flood_powers(bits)
    if len(powers) > 1:
        raise ValueError(f"flooding noise of {bits} bits does not fit a word")
    noise = digits[0].astype(np.int64) - offset
    secret = ternary[:, 0].copy()
    for half, message in enumerate((noise, np.zeros_like(noise))):
        zero[half], error = public.residues[half], stream()(n)
        rns.encrypt_row(zero[half, 0], secret, error, message, ring.tables, 0)  # message + error - ternary x public
        wipe([error])
    wipe([ternary, secret, digits, noise.view(np.uint64)])
    return Ciphertext(reply.chain, reply.chain.added(zero, reply.residues), reply.primes)
