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

from privcirnet.he.circuits.bfv.noninteractive.kernel_client import key_bytes
from privcirnet.he.circuits.network_circuit import RELINEARIZE, KeyPlan, element_of
from privcirnet.he.ring.kernels import inner_products, operands
from privcirnet.he.ring.kernels.arithmetic import with_quotient
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe import switch_keys
from privcirnet.he.rlwe.chain import Chain
from privcirnet.he.rlwe.kernels import blake2xb, hybrid, receive
from privcirnet.he.rlwe.kernels.modulus import Ring, ring
from privcirnet.he.rlwe.wire_bytes import SEED_BYTES, Modulus, check_keys_length, check_length
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
        self._chain, self._level = parameters.chain, level
        self.parameters, at = parameters.moduli[number], parameters.at(number, level)
        t, data, n = self.parameters.plain_modulus, self._chain.data_primes, parameters.ring_degree
        self._plain = [plaintexts.plain(t, data[: count + 1], n) for count in range(len(data))]
        self._square, self._lift = BfvSquare(self._chain, t), parameters.product // t
        self._ring = ring(data, n)
        self._form = reply.form(answers, self._plain[level - 1], Replies.of(at, data), flood_bits(at))

    def own(self, value: Value) -> Value:
        """Return an input for this plain modulus.

        Args:
            value: mod T.
        """
        residues = value.residues.swapaxes(0, 1).copy()
        for rows, p in zip(residues, self._chain.data_primes, strict=True):
            factor, quotient = with_quotient(self._lift % p, p)
            hybrid.multiply_constant(rows, factor, quotient, np.uint64(p))
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
        element = element_of(columns, self._chain.ring_degree)
        key, own = keys.switches[columns], ciphertext.residues
        return Value(self._chain, self._chain.rotated(own, ciphertext.digits, key, element))

    def combine(self, ciphertexts: Sequence[Value], factors: Residues) -> Value:
        """See :meth:`Evaluator.combine`."""
        self.counts["pmult"] += len(ciphertexts)
        level, n = ciphertexts[0].residues.shape[1:]
        words = min(operands.CHUNK, n)
        inputs = np.empty((level * n // words, len(ciphertexts), 2, words), dtype=np.uint64)

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
        self._parameters, self._plan, self._chain, self.rows = parameters, plan, parameters.chain, 1
        n, data = parameters.ring_degree, self._chain.data_primes
        self._requests = Modulus(data, n)
        self._answers = ring((*data[: plan.level], self._chain.special_primes[0]), n)
        numbers = range(len(parameters.moduli))
        self.evaluators = [KernelEvaluator(parameters, number, plan.level, self._answers) for number in numbers]

    def load_evaluation_keys(self, messages: Sequence[bytes]) -> list[KernelKeys]:
        """See :meth:`LeveledServer.load_evaluation_keys`: the same keys for all."""
        (message,) = messages
        n, chain = self._chain.ring_degree, self._chain
        modulus = Modulus(chain.data_primes[: self._plan.level], n)
        at = modulus.compact_size(1) + SEED_BYTES
        check_keys_length(message, at, key_bytes(self._parameters, self._plan) - at)
        public, found = self._seeded(message[:at], modulus), dict[int, Residues]()
        for kind, level in self._plan.keys:
            size = switch_keys.key_size(chain, level)
            found[kind] = switch_keys.load(chain, level, message[at : at + size])
            at += size
        keys = KernelKeys(found, PublicKey.build(self._answers, self._answers.values(public)))
        return [keys] * len(self.evaluators)

    def receive_all(self, request: Sequence[Sequence[bytes]]) -> list[Callable[[], list[Value]]]:
        """See :meth:`LeveledServer.receive_all`."""
        (row,) = request
        found = each(self._received, row)
        return [partial(evaluator.all_own, found) for evaluator in self.evaluators]

    def _received(self, message: bytes) -> Value:
        """A ciphertext mod T."""
        residues = self._seeded(message, self._requests)
        return Value(self._chain, ring(self._chain.data_primes, self._chain.ring_degree).values(residues))

    def _seeded(self, message: bytes, modulus: Modulus) -> Residues:
        check_length(message, modulus.compact_size(1) + SEED_BYTES)
        residues = np.empty((2, len(modulus.primes), modulus.ring_degree), dtype=np.uint64)
        (roots,) = blake2xb.roots([message[-SEED_BYTES:]], residues[0].size)
        receive.receive(residues, message, np.arange(modulus.ring_degree), roots, modulus)
        return residues
