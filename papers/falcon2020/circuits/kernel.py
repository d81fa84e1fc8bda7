"""Leveled inference on compiled kernels: circuits at one key switch's cost for each rotation, under short moduli.

Ciphertexts stay in the kernel's NTT order. The digits of a value are made at its first rotation and kept for the others
(hoisting). A rotated value is divided by P where a step needs it (double hoisting): sums of rotations and products are
divided once, and a rotation divides the second polynomial alone. Squares are those of :mod:`.square`. Values lose
primes where the circuit says so (:mod:`.modulus_switching`), and keys have no more primes than they need.

One secret, one request and one set of keys serve all plain moduli: an input times T / t is one for t
(:mod:`.plain_moduli`). Keys on the wire: the public key (an encryption of zero), then the switch keys in the order of
the plan's ``keys``; all are seeded, and each has no more data primes than what it switches.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from papers.falcon2020.circuits.interface import KeyPlan
from papers.falcon2020.circuits.plain_moduli import LeveledParameters
from papers.falcon2020.circuits.square import BfvSquare
from privcirnet.errors import RuleError
from privcirnet.he.bfv.client import BfvClient
from privcirnet.he.bfv.kernel_engine import ClientKeys, public_key
from privcirnet.he.bfv.kernels import plaintexts, reply
from privcirnet.he.bfv.noise import flood_bits
from privcirnet.he.bfv.parameters import ReplyFormat
from privcirnet.he.ring.kernels import inner_products
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe import switch_keys
from privcirnet.he.rlwe.kernels.rns import RnsRing, ring
from privcirnet.he.rlwe.key_switching import Ciphertext, ModulusChain
from privcirnet.he.rlwe.parameters import RELINEARIZATION
from privcirnet.he.rlwe.switch_keys import KeySwitchingKeys, read
from privcirnet.he.rlwe.wire_bytes import check_keys_length
from privcirnet.he.system.threads import each


class KernelEvaluator:
    """The server's side for one plain modulus; see :class:`.evaluator.Evaluator`.

    Args:
        parameters: n, q, and all t.
        primes: data primes of an answer.
        answers: the ring of their primes and of a special one.
    """

    def __init__(self, parameters: LeveledParameters, number: int, primes: int, answers: RnsRing) -> None:
        self.counts: Counter[str] = Counter()
        self._chain, self._primes = ModulusChain(parameters.rlwe), primes
        self.special = self._chain.special
        self.parameters, at = parameters.moduli[number], parameters.at(number, primes)
        t, data, n = self.parameters.plain_modulus, parameters.rlwe.data_primes, parameters.ring_degree
        self._plain = [plaintexts.plain(t, data[: count + 1], n) for count in range(len(data))]
        self._square, self._lift = BfvSquare(self._chain, t), parameters.product // t
        self._ring = self._chain.ring
        self._form = reply.reply_tables(answers, self._plain[primes - 1], ReplyFormat.of(at, data), flood_bits(at))

    def inputs(self, received: Sequence[Ciphertext]) -> list[Ciphertext]:
        """Return the inputs for this plain modulus.

        Args:
            received: mod T.
        """
        return [each.times(self._lift) for each in received]

    def encode(self, slots: Residues, primes: int) -> Residues:
        """Round(q m / t) in the kernel's order, (l, n)."""
        made = np.zeros((primes, slots.size), dtype=np.uint64)
        plaintexts.add(made, slots, self._plain[primes - 1])
        return self._ring.values(made[None])[0]

    def encode_factors(self, slots: Sequence[Residues], primes: int, *, extended: bool) -> Residues:
        """Return factors split for products, (products, l or l + k, n)."""
        basis, n = self._basis(primes, extended), self._ring.degree
        t = self.parameters.plain_modulus
        constants = plaintexts.plain(t, basis.primes, n) if extended else self._plain[primes - 1]
        made = np.empty((len(slots), primes + extended * self.special, n), dtype=np.uint64)
        for target, own in zip(made, slots, strict=True):
            plaintexts.factor(target, own, constants, basis.tables)
        return basis.split(made)

    def to_ntt(self, ciphertext: Ciphertext) -> Ciphertext:
        return ciphertext

    def turn(self, ciphertext: Ciphertext, element: int, keys: ClientKeys) -> Ciphertext:
        self.counts["rotate"] += 1
        return ciphertext.turned(element, keys.switches[element])

    def combine(self, ciphertexts: Sequence[Ciphertext], factors: Residues) -> Ciphertext:
        self.counts["pmult"] += len(ciphertexts)
        primes, rows = ciphertexts[0].primes, factors.shape[1]
        basis, inputs = self._basis(primes, rows > primes), self._ring.inputs(len(ciphertexts), rows)

        def place(number: int) -> None:
            own = ciphertexts[number]
            basis.place(inputs, number, own.extended if rows > primes else own.residues)

        each(place, range(len(ciphertexts)))
        return Ciphertext(self._chain, inner_products.inner_product(inputs, 0, factors, basis.moduli), primes)

    def add(self, first: Ciphertext, second: Ciphertext) -> Ciphertext:
        self.counts["add"] += 1
        return first.plus(second)

    def add_plain(self, ciphertext: Ciphertext, plaintext: Residues) -> Ciphertext:
        return ciphertext.plus_plain(plaintext)

    def square(self, ciphertext: Ciphertext, keys: ClientKeys) -> Ciphertext:
        self.counts["square"] += 1
        found = self._chain.relinearized(self._square.square(ciphertext.residues), keys.switches[RELINEARIZATION])
        return Ciphertext(self._chain, found, ciphertext.primes)

    def reduce(self, ciphertext: Ciphertext, primes: int) -> Ciphertext:
        """Return a ciphertext under fewer data primes.

        Args:
            primes: data primes that are left.
        """
        return ciphertext.reduced(primes)

    def answer(self, ciphertext: Ciphertext, addend: Residues, keys: ClientKeys) -> bytes:
        own = ciphertext.reduced(self._primes) if ciphertext.primes > self._primes else ciphertext
        return reply.reply(own.residues.copy(), keys.public, addend, self._form)

    def _basis(self, primes: int, extended: bool) -> RnsRing:
        """Of the rows of values: all data primes, or the first and the special ones."""
        if not extended:
            return self._ring
        return ring(self._chain.parameters.key_modulus(primes).primes, self._ring.degree, self.special)


class LeveledKernelServer:
    """The server's side for all plain moduli; see :class:`.interface.LeveledServer`.

    Args:
        parameters: n, q, and all t.
    """

    def __init__(self, parameters: LeveledParameters, plan: KeyPlan) -> None:
        self._parameters, self._plan, self._chain, self.rows = parameters, plan, ModulusChain(parameters.rlwe), 1
        rlwe = parameters.rlwe
        self._answers = ring((*rlwe.data_primes[: plan.primes], rlwe.special_primes[0]), rlwe.ring_degree)
        numbers = range(len(parameters.moduli))
        self.evaluators = [KernelEvaluator(parameters, number, plan.primes, self._answers) for number in numbers]

    def load_evaluation_keys(self, messages: Sequence[bytes]) -> list[ClientKeys]:
        """Return the keys, the same for each plain modulus."""
        (message,) = messages
        rlwe, found = self._parameters.rlwe, KeySwitchingKeys()
        modulus = rlwe.modulus(self._plan.primes)
        at = modulus.seeded_size()
        check_keys_length(message, self._parameters.key_bytes(self._plan.primes, self._plan.keys))
        public = public_key(message[:at], modulus, self._answers)
        for kind, primes in self._plan.keys:
            size = rlwe.key_bytes(primes)
            found[kind] = switch_keys.load(self._chain, primes, message[at : at + size])
            at += size
        return [ClientKeys(found, public)] * len(self._parameters.moduli)

    def receive_all(self, request: Sequence[Sequence[bytes]]) -> list[Callable[[], list[Ciphertext]]]:
        (row,) = request

        def received(_: int, residues: Residues) -> Ciphertext:
            """A ciphertext mod T."""
            return Ciphertext(self._chain, self._chain.ring.values(residues), residues.shape[1])

        found = read(row, self._parameters.rlwe.modulus(len(self._parameters.data_bits)), received)
        return [partial(evaluator.inputs, found) for evaluator in self.evaluators]


class LeveledKernelClient(BfvClient):
    """The client's side for all plain moduli; see :class:`.interface.LeveledClient`.

    Args:
        parameters: n, q, and all t.
    """

    def __init__(self, parameters: LeveledParameters, plan: KeyPlan) -> None:
        numbers = range(len(parameters.moduli))
        super().__init__(parameters.rlwe, [parameters.at(number, plan.primes) for number in numbers])
        self._plan = plan

    def evaluation_keys(self) -> list[bytes]:
        """In one message."""
        switches = [self.switch_key(primes, name) for name, primes in self._plan.keys]
        return [b"".join([self.public_key(self._plan.primes), *switches])]

    def encrypt_all(self, slots: Sequence[Residues]) -> list[list[bytes]]:
        """One row of seeded ciphertexts."""
        return [each(lambda number: self.request([own[number] for own in slots]), range(len(slots[0])))]

    def decrypt(self, number: int, message: bytes) -> Residues:
        return self.answer(number, message)

    def export_secret(self) -> bytes:
        """Return the secret key as bytes."""
        return self._key().tobytes()

    def restore_secret(self, content: bytes) -> None:
        """Take another secret key in place of the own one.

        Args:
            content: from :meth:`export_secret`, of a client with the same parameters.

        Raises:
            RuleError: it has another length.
        """
        shape = self._key().shape
        if len(content) != 8 * math.prod(shape):
            rule, remedy = f"a secret key must have {8 * math.prod(shape)} bytes", "use the same program"
            raise RuleError(rule, got=f"{len(content)}", remedy=remedy)
        self.close()
        self._secret = np.frombuffer(content, np.uint64).reshape(shape).copy()
