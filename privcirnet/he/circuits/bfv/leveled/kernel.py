"""The server on compiled kernels: leveled circuits at one key switch's cost for each rotation, under short moduli.

Ciphertexts stay in the kernel's NTT order. The digits of a value are made at its first rotation and kept for the others
(hoisting). A rotated value is divided by P where a step needs it (double hoisting): sums of rotations and products are
divided once, and a rotation divides the second polynomial alone. Squares are those of :mod:`schemes.bfv.square`.
Values lose primes where the circuit says so (:mod:`circuits.bfv.leveled.modulus_switching`), and keys have no
more primes than they need.

One request and one set of keys serve all plain moduli: an input times T / t is one for t
(:mod:`schemes.bfv.plain_moduli`).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from privcirnet.he.circuits.bfv.network_circuit import KeyPlan
from privcirnet.he.ring.kernels import inner_products
from privcirnet.he.ring.kernels.arithmetic import with_quotient
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe import switch_keys
from privcirnet.he.rlwe.chain import Chain
from privcirnet.he.rlwe.kernels import rows as kernel_rows
from privcirnet.he.rlwe.kernels.modulus import Ring, ring
from privcirnet.he.rlwe.key_names import RELINEARIZATION
from privcirnet.he.rlwe.seeded import read, read_one
from privcirnet.he.rlwe.switch_keys import SwitchKeys
from privcirnet.he.rlwe.wire_bytes import check_keys_length
from privcirnet.he.schemes.bfv.kernels import plaintexts, reply
from privcirnet.he.schemes.bfv.kernels.reply import PublicKey
from privcirnet.he.schemes.bfv.noise import flood_bits
from privcirnet.he.schemes.bfv.plain_moduli import LeveledParameters
from privcirnet.he.schemes.bfv.rounding import Replies
from privcirnet.he.schemes.bfv.square import BfvSquare
from privcirnet.he.system.threads import each


@dataclass(frozen=True)
class KernelKeys:
    """A client's keys.

    Attributes:
        switches: by name.
    """

    switches: SwitchKeys
    public: PublicKey


@dataclass(frozen=True)
class Value:
    """A ciphertext, in the kernel's order: as it is, or *extended*, times P and under the special primes too.

    Attributes:
        chain: its primes.
        made: (2, l, n), or extended (2, k + l, n).
        primes: data primes, l.
    """

    chain: Chain
    made: Residues
    primes: int

    @property
    def is_extended(self) -> bool:
        """Whether a division by P is still to be done."""
        return self.made.shape[1] > self.primes

    @cached_property
    def second(self) -> Residues:
        """The second polynomial, (l, n)."""
        return self.chain.lowered(self.made[1:].copy())[0] if self.is_extended else self.made[1]

    @cached_property
    def residues(self) -> Residues:
        """Both polynomials, (2, l, n)."""
        if not self.is_extended:
            return self.made
        return np.stack([self.chain.lowered(self.made[:1].copy())[0], self.second])

    @cached_property
    def extended(self) -> Residues:
        """Both polynomials times P, (2, k + l, n)."""
        return self.made if self.is_extended else self.chain.multiplied(self.made)

    @cached_property
    def digits(self) -> Residues:
        """Of the second polynomial, made once for all rotations."""
        return self.chain.digits(self.second)


class KernelEvaluator:
    """The server's side for one plain modulus; see :class:`circuits.bfv.evaluator.Evaluator`.

    Args:
        parameters: n, q, and all t.
        primes: data primes of an answer.
        answers: the ring of their primes and of a special one.
    """

    def __init__(self, parameters: LeveledParameters, number: int, primes: int, answers: Ring) -> None:
        self.counts: Counter[str] = Counter()
        self._chain, self._level, self.special = Chain(parameters.rlwe), primes, len(parameters.rlwe.special_primes)
        self.parameters, at = parameters.moduli[number], parameters.at(number, primes)
        t, data, n = self.parameters.plain_modulus, parameters.rlwe.data_primes, parameters.ring_degree
        self._plain = [plaintexts.plain(t, data[: count + 1], n) for count in range(len(data))]
        self._square, self._lift = BfvSquare(self._chain, t), parameters.product // t
        self._ring, self._special = self._chain.ring, parameters.rlwe.special_primes
        self._form = reply.form(answers, self._plain[primes - 1], Replies.of(at, data), flood_bits(at))

    def own(self, value: Value) -> Value:
        """Return an input for this plain modulus.

        Args:
            value: mod T.
        """
        residues = value.residues.swapaxes(0, 1).copy()
        for rows, p in zip(residues, self._chain.parameters.data_primes, strict=True):
            factor, quotient = with_quotient(self._lift % p, p)
            kernel_rows.multiply_constant(rows, factor, quotient, np.uint64(p))
        return self._value(np.ascontiguousarray(residues.swapaxes(0, 1)))

    def all_own(self, values: Sequence[Value]) -> list[Value]:
        """Return all inputs for this plain modulus; see :meth:`own`.

        Args:
            values: mod T.
        """
        return [self.own(value) for value in values]

    def encode(self, slots: Residues, primes: int) -> Residues:
        """Round(q m / t) in the kernel's order, (l, n)."""
        made = np.zeros((primes, slots.size), dtype=np.uint64)
        plaintexts.add(made, slots, self._plain[primes - 1])
        return self._ring.values(made[None])[0]

    def encode_factors(self, slots: Sequence[Residues], primes: int, *, extended: bool) -> Residues:
        """Split for products, (products, l or l + k, n)."""
        basis, n = self._basis(primes, extended), self._ring.degree
        t = self.parameters.plain_modulus
        constants = plaintexts.plain(t, basis.primes, n) if extended else self._plain[primes - 1]
        made = np.empty((len(slots), primes + extended * self.special, n), dtype=np.uint64)
        for target, own in zip(made, slots, strict=True):
            plaintexts.factor(target, own, constants, basis.tables)
        return basis.split(made)

    def to_ntt(self, ciphertext: Value) -> Value:
        return ciphertext

    def turn(self, ciphertext: Value, element: int, keys: KernelKeys) -> Value:
        self.counts["rotate"] += 1
        made = self._chain.rotated(ciphertext.made, ciphertext.digits, keys.switches[element], element)
        return Value(self._chain, made, ciphertext.primes)

    def combine(self, ciphertexts: Sequence[Value], factors: Residues) -> Value:
        self.counts["pmult"] += len(ciphertexts)
        primes, rows = ciphertexts[0].primes, factors.shape[1]
        basis, inputs = self._basis(primes, rows > primes), self._ring.inputs(len(ciphertexts), rows)

        def place(number: int) -> None:
            own = ciphertexts[number]
            basis.place(inputs, number, own.extended if rows > primes else own.residues)

        each(place, range(len(ciphertexts)))
        return Value(self._chain, inner_products.inner_product(inputs, 0, factors, basis.moduli), primes)

    def add(self, first: Value, second: Value) -> Value:
        self.counts["add"] += 1
        if first.is_extended or second.is_extended:
            return Value(self._chain, self._chain.added_extended(first.extended, second.extended), first.primes)
        return self._value(self._chain.added(first.made, second.made))

    def add_plain(self, ciphertext: Value, plaintext: Residues) -> Value:
        first = self._chain.added(ciphertext.residues[0], plaintext)
        return self._value(np.stack([first, ciphertext.residues[1]]))

    def square(self, ciphertext: Value, keys: KernelKeys) -> Value:
        self.counts["square"] += 1
        found = self._square.square(ciphertext.residues)
        return Value(self._chain, self._chain.relinearized(found, keys.switches[RELINEARIZATION]), ciphertext.primes)

    def reduce(self, ciphertext: Value, primes: int) -> Value:
        """With the division by P, if that is still to be done."""
        if ciphertext.is_extended:
            return self._value(self._chain.lowered(ciphertext.made.copy(), ciphertext.primes - primes))
        return self._value(self._chain.reduced(ciphertext.made, primes))

    def answer(self, ciphertext: Value, addend: Residues, keys: KernelKeys) -> bytes:
        own = self.reduce(ciphertext, self._level) if ciphertext.primes > self._level else ciphertext
        return reply.reply(own.residues.copy(), keys.public, addend, self._form)

    def _basis(self, primes: int, extended: bool) -> Ring:
        """Of the rows of values: all data primes, or the first and the special ones."""
        if not extended:
            return self._ring
        return ring(self._ring.primes[:primes] + self._special, self._ring.degree, self.special)

    def _value(self, residues: Residues) -> Value:
        return Value(self._chain, residues, residues.shape[1])


class KernelServer:
    """The server's side for all plain moduli; see :class:`circuits.bfv.leveled.interface.LeveledServer`.

    Args:
        parameters: n, q, and all t.
    """

    def __init__(self, parameters: LeveledParameters, plan: KeyPlan) -> None:
        self._parameters, self._plan, self._chain, self.rows = parameters, plan, Chain(parameters.rlwe), 1
        rlwe = parameters.rlwe
        self._answers = ring((*rlwe.data_primes[: plan.primes], rlwe.special_primes[0]), rlwe.ring_degree)
        numbers = range(len(parameters.moduli))
        self.evaluators = [KernelEvaluator(parameters, number, plan.primes, self._answers) for number in numbers]

    def load_evaluation_keys(self, messages: Sequence[bytes]) -> list[KernelKeys]:
        (message,) = messages
        rlwe, found = self._parameters.rlwe, SwitchKeys()
        modulus = rlwe.modulus(self._plan.primes)
        at = modulus.seeded_size()
        check_keys_length(message, at, self._parameters.key_bytes(self._plan.primes, self._plan.keys) - at)
        public = self._answers.values(read_one(message[:at], modulus))
        for kind, primes in self._plan.keys:
            size = rlwe.key_bytes(primes)
            found[kind] = switch_keys.load(self._chain, primes, message[at : at + size])
            at += size
        return [KernelKeys(found, PublicKey.build(self._answers, public))] * len(self.evaluators)

    def receive_all(self, request: Sequence[Sequence[bytes]]) -> list[Callable[[], list[Value]]]:
        (row,) = request

        def received(_: int, residues: Residues) -> Value:
            """A ciphertext mod T."""
            return Value(self._chain, self._chain.ring.values(residues), residues.shape[1])

        found = read(row, self._parameters.rlwe.modulus(len(self._parameters.data_bits)), received)
        return [partial(evaluator.all_own, found) for evaluator in self.evaluators]
