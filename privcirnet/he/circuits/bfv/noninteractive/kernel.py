"""The server on compiled kernels: leveled circuits at one key switch's cost for each rotation, under short moduli.

Ciphertexts stay in the kernel's NTT order. The digits of a value are made at its first rotation and kept for the others
(hoisting). Sums of plaintext products run straight over the weights. Squares are those of :mod:`schemes.bfv.square`.
Values lose primes where the circuit says so (:mod:`circuits.bfv.noninteractive.modulus_switching`), and keys have no
more primes than they need.

One request and one set of keys serve all plain moduli: an input times T / t is one for t
(:mod:`schemes.bfv.plain_moduli`).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from privcirnet.he.circuits.network_circuit import RELINEARIZE, KeyPlan, element_of
from privcirnet.he.ring.kernels import inner_products
from privcirnet.he.ring.kernels.arithmetic import with_quotient
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe import switch_keys
from privcirnet.he.rlwe.chain import Chain
from privcirnet.he.rlwe.kernels import rows as kernel_rows
from privcirnet.he.rlwe.kernels.modulus import Ring, ring
from privcirnet.he.rlwe.seeded import read, read_one
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
        switches: by columns of a rotation or :data:`circuits.network_circuit.RELINEARIZE`, as inputs of products.
    """

    switches: dict[int, Residues]
    public: PublicKey


@dataclass(frozen=True)
class Value:
    """A ciphertext.

    Attributes:
        chain: its primes.
        residues: in the kernel's order, (2, l, n).
    """

    chain: Chain
    residues: Residues

    @cached_property
    def digits(self) -> Residues:
        """Of the second polynomial, made once for all rotations."""
        return self.chain.digits(self.residues[1])

    @property
    def level(self) -> int:
        """Data primes."""
        return self.residues.shape[1]


class KernelEvaluator:
    """The server's side for one plain modulus; see :class:`circuits.bfv.noninteractive.evaluator.Evaluator`.

    Args:
        parameters: n, q, and all t.
        level: data primes of an answer.
        answers: the ring of their primes and of a special one.
    """

    def __init__(self, parameters: LeveledParameters, number: int, level: int, answers: Ring) -> None:
        self.counts: Counter[str] = Counter()
        self._chain, self._level = Chain(parameters.rlwe), level
        self.parameters, at = parameters.moduli[number], parameters.at(number, level)
        t, data, n = self.parameters.plain_modulus, parameters.rlwe.data_primes, parameters.ring_degree
        self._plain = [plaintexts.plain(t, data[: count + 1], n) for count in range(len(data))]
        self._square, self._lift = BfvSquare(self._chain, t), parameters.product // t
        self._ring = self._chain.ring
        self._form = reply.form(answers, self._plain[level - 1], Replies.of(at, data), flood_bits(at))

    def own(self, value: Value) -> Value:
        """Return an input for this plain modulus.

        Args:
            value: mod T.
        """
        residues = value.residues.swapaxes(0, 1).copy()
        for rows, p in zip(residues, self._chain.parameters.data_primes, strict=True):
            factor, quotient = with_quotient(self._lift % p, p)
            kernel_rows.multiply_constant(rows, factor, quotient, np.uint64(p))
        return Value(self._chain, np.ascontiguousarray(residues.swapaxes(0, 1)))

    def all_own(self, values: Sequence[Value]) -> list[Value]:
        """Return all inputs for this plain modulus; see :meth:`own`.

        Args:
            values: mod T.
        """
        return [self.own(value) for value in values]

    def encode(self, slots: Residues, level: int) -> Residues:
        """See :meth:`Evaluator.encode`: round(q m / t) in the kernel's order, (l, n)."""
        made = np.zeros((level, slots.size), dtype=np.uint64)
        plaintexts.add(made, slots, self._plain[level - 1])
        return self._ring.values(made[None])[0]

    def encode_factors(self, slots: Sequence[Residues], level: int) -> Residues:
        """See :meth:`Evaluator.encode_factors`: split for products, (products, l, n)."""
        made = np.empty((len(slots), level, slots[0].size), dtype=np.uint64)
        for target, own in zip(made, slots, strict=True):
            plaintexts.factor(target, own, self._plain[level - 1], self._ring.tables)
        return self._ring.split(made)

    def to_ntt(self, ciphertext: Value) -> Value:
        """See :meth:`Evaluator.to_ntt`: it is so already."""
        return ciphertext

    def turn(self, ciphertext: Value, columns: int, keys: KernelKeys) -> Value:
        """See :meth:`Evaluator.turn`."""
        self.counts["rotate"] += 1
        element = element_of(columns, self._ring.degree)
        key, own = keys.switches[columns], ciphertext.residues
        return Value(self._chain, self._chain.rotated(own, ciphertext.digits, key, element))

    def combine(self, ciphertexts: Sequence[Value], factors: Residues) -> Value:
        """See :meth:`Evaluator.combine`."""
        self.counts["pmult"] += len(ciphertexts)
        inputs = self._ring.inputs(len(ciphertexts), ciphertexts[0].level)

        def place(number: int) -> None:
            self._ring.place(inputs, number, ciphertexts[number].residues.copy())

        each(place, range(len(ciphertexts)))
        return Value(self._chain, inner_products.inner_product(inputs, 0, factors, self._ring.moduli))

    def add(self, first: Value, second: Value) -> Value:
        """See :meth:`Evaluator.add`."""
        self.counts["add"] += 1
        return Value(self._chain, self._chain.added(first.residues, second.residues))

    def add_plain(self, ciphertext: Value, plaintext: Residues) -> Value:
        """See :meth:`Evaluator.add_plain`."""
        first = self._chain.added(ciphertext.residues[0], plaintext)
        return Value(self._chain, np.stack([first, ciphertext.residues[1]]))

    def square(self, ciphertext: Value, keys: KernelKeys) -> Value:
        """See :meth:`Evaluator.square`."""
        self.counts["square"] += 1
        found = self._square.square(ciphertext.residues)
        switched = self._chain.switched(self._chain.digits(found[2]), keys.switches[RELINEARIZE])
        return Value(self._chain, self._chain.added(found[:2], switched))

    def reduce(self, ciphertext: Value, level: int) -> Value:
        """See :meth:`Evaluator.reduce`."""
        return Value(self._chain, self._chain.reduced(ciphertext.residues, level))

    def answer(self, ciphertext: Value, addend: Residues, keys: KernelKeys) -> bytes:
        """See :meth:`Evaluator.answer`."""
        own = self.reduce(ciphertext, self._level) if ciphertext.level > self._level else ciphertext
        return reply.reply(own.residues.copy(), keys.public, addend, self._form)


class KernelServer:
    """The server's side for all plain moduli; see :class:`circuits.bfv.noninteractive.interface.LeveledServer`.

    Args:
        parameters: n, q, and all t.
    """

    def __init__(self, parameters: LeveledParameters, plan: KeyPlan) -> None:
        self._parameters, self._plan, self._chain, self.rows = parameters, plan, Chain(parameters.rlwe), 1
        rlwe = parameters.rlwe
        self._answers = ring((*rlwe.data_primes[: plan.level], rlwe.special_primes[0]), rlwe.ring_degree)
        numbers = range(len(parameters.moduli))
        self.evaluators = [KernelEvaluator(parameters, number, plan.level, self._answers) for number in numbers]

    def load_evaluation_keys(self, messages: Sequence[bytes]) -> list[KernelKeys]:
        """See :meth:`LeveledServer.load_evaluation_keys`: the same keys for all."""
        (message,) = messages
        rlwe, found = self._parameters.rlwe, dict[int, Residues]()
        modulus = rlwe.modulus(self._plan.level)
        at = modulus.seeded_size()
        check_keys_length(message, at, self._parameters.key_bytes(self._plan.level, self._plan.keys) - at)
        public = self._answers.values(read_one(message[:at], modulus))
        for kind, level in self._plan.keys:
            size = rlwe.key_bytes(level)
            found[kind] = switch_keys.load(self._chain, level, message[at : at + size])
            at += size
        return [KernelKeys(found, PublicKey.build(self._answers, public))] * len(self.evaluators)

    def receive_all(self, request: Sequence[Sequence[bytes]]) -> list[Callable[[], list[Value]]]:
        """See :meth:`LeveledServer.receive_all`."""
        (row,) = request

        def received(_: int, residues: Residues) -> Value:
            """A ciphertext mod T."""
            return Value(self._chain, self._chain.ring.values(residues))

        found = read(row, self._parameters.rlwe.modulus(len(self._parameters.data_bits)), received)
        return [partial(evaluator.all_own, found) for evaluator in self.evaluators]
