"""Carries and ranges of the sum of two numbers of which each party knows one, the client's ahead, the server's online.

A bit is *split* if one party holds m, which it learns online, and the other knows l, fixed ahead, and the bit is m + l.
Bits of the sum of two digits are looked up in tables (:class:`DigitTable`); their results are multiplied and added,
sides alternating (:class:`Merge`): each level is one message. Values are planes, 64 to a word; sums of bits are XOR.
Every string that is sent is hidden by a key of an oblivious transfer or by a fresh bit, and each hides once.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations

import numpy as np

from privcirnet.he.mpc.gadgets import bits, minus, pick, split, zeros
from privcirnet.he.mpc.ot.session import ReceiverOts, SenderOts, planes
from privcirnet.he.ring.modular import Residues

Factors = frozenset[int]
"""Inputs of a merge that are multiplied, by number."""
Planes = Residues | dict[int, Residues]
"""Planes by the number of their input."""


def digits_of(values: Residues, tables: Sequence["DigitTable"]) -> list[Residues]:
    """Return the planes of the digit of each table, the lowest bits first."""
    sizes = [table.bits for table in tables]
    return split(planes(values, sum(sizes)), sizes)


def by_part(results: Residues, parts: Sequence["DigitTable | Merge"]) -> list[Residues]:
    """Return the results of each part."""
    return split(results, [part.outputs for part in parts])


def offer(offered: SenderOts, slot: int, strings: Residues, flip: Residues | None = None) -> tuple[Residues, Residues]:
    """Return the message of a correlated transfer of bit strings, and the helper's shares of choice x string.

    Args:
        strings: (bits, words).
        flip: bits where the chooser's choice is not that of the transfer.
    """
    if len(strings) > 64:
        raise ValueError(f"a key hides a word, not {len(strings)} bits")
    first, second = offered.planes(slot, len(strings))
    if flip is not None:
        change = (first ^ second) & flip
        first, second = first ^ change, second ^ change
    return strings ^ first ^ second, first


def accept(ots: ReceiverOts, slot: int, message: Residues, choice: Residues) -> Residues:
    """Return the chooser's shares of choice x string; ``choice``: with the flip."""
    return ots.planes(slot, len(message)) ^ (message & choice)


def bits_of_sums(bits: int, function: Callable[[int], bool]) -> int:
    """Return a function of the sum of two digits of so many bits, as a number whose bit s is its value at s.

    >>> bits_of_sums(2, lambda s: s >= 4)
    112
    """
    return sum(function(s) << s for s in range((2 << bits) - 1))


def carry(bits: int) -> int:
    """Return whether two digits carry."""
    return bits_of_sums(bits, lambda s: s >> bits > 0)


def propagates(bits: int) -> int:
    """Return whether two digits carry if one comes from below, and not without."""
    return bits_of_sums(bits, lambda s: s + 1 == 1 << bits)


@dataclass(frozen=True)
class DigitTable:
    """A table of bits of the sum of a digit of the client's and one of the server's.

    The client makes the table of its answers for every digit of the server. Ahead, the table is shifted by a random
    number of the server's choice, in shares; online the server says where its digit went, and each looks up its share.

    Attributes:
        bits: bits of the digit.
        functions: results, see :func:`bits_of_sums`.
    """

    bits: int
    functions: tuple[int, ...]

    @property
    def outputs(self) -> int:
        """Number of results."""
        return len(self.functions)

    @property
    def table_planes(self) -> int:
        """Planes of a share of the table."""
        return self.outputs << self.bits

    @property
    def ahead_planes(self) -> int:
        """Planes that the client sends ahead."""
        return self.bits * self.table_planes // 2

    @property
    def online_planes(self) -> int:
        """Planes that the server sends online."""
        return self.bits + self.outputs

    def shaped(self, planes: Residues) -> Residues:
        """Return a share of the table of its planes."""
        return planes.reshape(self.outputs, 1 << self.bits, -1)

    def client_table(self, offered: SenderOts, digit: Residues) -> tuple[Residues, Residues]:
        """Return the message, (ahead planes, words), and the client's share of the table, (outputs, 2^bits, words).

        Args:
            offered: a slot for each bit.
            digit: planes, the lowest first.
        """
        table, messages = (
            self._answers(digit),
            np.empty((self.bits, self.outputs << self.bits - 1, digit.shape[1]), np.uint64),
        )
        for j in range(self.bits):
            low, high = _sides(table, j)
            messages[j], share = offer(offered, j, (low ^ high).reshape(-1, digit.shape[1]))
            share = share.reshape(low.shape)
            low ^= share
            high ^= share
        return messages.reshape(-1, digit.shape[1]), table

    def _answers(self, digit: Residues) -> Residues:
        """Return the results for each digit of the server: from one to the next, few of the client's change them."""
        table, at = np.zeros((self.outputs, 1 << self.bits, digit.shape[1]), dtype=np.uint64), one_hot(digit)
        for row, function in zip(table, self.functions, strict=True):
            before = 0
            for i in range(1 << self.bits):
                here = function >> i & (1 << (1 << self.bits)) - 1
                changed = here ^ before
                row[i] = row[i - 1] if i else 0
                for c in range(changed.bit_length()):
                    if changed >> c & 1:
                        row[i] ^= at[c]
                before = here
        return table

    def server_table(self, ots: ReceiverOts, message: Residues) -> Residues:
        """Return the server's share of the table, shifted by its choices; ``message``: the client's."""
        words = message.shape[1]
        table = np.zeros((self.outputs, 1 << self.bits, words), dtype=np.uint64)
        for j, part in enumerate(message.reshape(self.bits, -1, words)):
            low, high = _sides(table, j)
            share = accept(ots, j, part, ots.choices[j]).reshape(low.shape)
            swap = ((low ^ high) & ots.choices[j]) ^ share
            low ^= swap
            high ^= swap
        return table

    def choose(self, digit: Residues, shift: Residues, table: Residues, fresh: Residues) -> Residues:
        """Return the server's message, (online planes, words): the shifted digit, its share hidden.

        Args:
            digit: planes, (bits, words).
            shift: its choices ahead, alike.
            fresh: random planes, (outputs, words): shares of the results that it knows ahead.
        """
        index = digit ^ shift
        return np.concatenate([index, _pick(table, index) ^ fresh])

    def answer(self, table: Residues, message: Residues) -> Residues:
        """Return the client's shares of the results, (outputs, words)."""
        return _pick(table, message[: self.bits]) ^ message[self.bits :]


def one_hot(digit: Residues) -> Residues:
    """Return planes of which that of each value's digit has its bit, (2^bits, words) of (bits, words)."""
    places = np.empty((1 << len(digit), digit.shape[1]), dtype=np.uint64)
    places[0] = ~np.uint64(0)
    for j, plane in enumerate(digit):
        np.bitwise_and(places[: 1 << j], plane, out=places[1 << j : 2 << j])
        places[: 1 << j] ^= places[1 << j : 2 << j]
    return places


def _sides(table: Residues, j: int) -> tuple[Residues, Residues]:
    """Return the entries without and with bit j in their index, as views, (outputs, 2^bits / 2, words) in effect."""
    pairs = table.reshape(len(table), -1, 2, 1 << j, table.shape[-1])
    return pairs[:, :, 0], pairs[:, :, 1]


def _pick(table: Residues, index: Residues) -> Residues:
    """Return the entry at the index, (outputs, words), reading all."""
    for j in reversed(range(len(index))):
        low, high = table[:, : 1 << j], table[:, 1 << j :]
        table = low ^ ((low ^ high) & index[j])
    return table[:, 0]


@dataclass(frozen=True)
class Merge:
    """Sums of products of split bits, whose masks are multiplied ahead.

    The masks are those of what the chooser holds; the helper knows its part of the bits ahead.

    Attributes:
        sums: products of each result; inputs have numbers.
    """

    sums: tuple[tuple[Factors, ...], ...]

    @property
    def outputs(self) -> int:
        """Number of results."""
        return len(self.sums)

    @cached_property
    def products(self) -> list[Factors]:
        """Products of two inputs or more that outputs are made of."""
        return _sorted(s for product in chain(*self.sums) for s in _subsets(product, range(2, len(product) + 1)))

    @cached_property
    def choices(self) -> list[Factors]:
        """Products of masks that the chooser chooses by, each a slot; single inputs first."""
        return _sorted(s for product in self.products for s in _subsets(product, range(1, len(product))))

    @cached_property
    def inputs(self) -> list[int]:
        """Inputs that the chooser says hidden."""
        return [next(iter(c)) for c in self.choices if len(c) == 1]

    @property
    def flip_planes(self) -> int:
        """Planes that the chooser sends ahead."""
        return len(self.choices) - len(self.inputs)

    @cached_property
    def needs(self) -> dict[Factors, list[Factors]]:
        """Products that each choice is a factor of."""
        return {c: [s for s in self.products if c < s] for c in self.choices}

    @property
    def help_planes(self) -> int:
        """Planes that the helper sends ahead."""
        return sum(map(len, self.needs.values()))

    @property
    def online_planes(self) -> int:
        """Planes that the chooser sends online."""
        return len(self.inputs) + self.outputs

    def flips(self, ots: ReceiverOts) -> Residues:
        """Return the chooser's first message: where a product of its masks is not the choice of its slot."""
        masks = self._masks(ots.choices)
        flips = [_product(masks, c) ^ ots.choices[i] for i, c in enumerate(self.choices) if len(c) > 1]
        return _planes(flips, ots.choices.shape[1])

    def _masks(self, choices: Residues) -> dict[int, Residues]:
        return dict(zip(self.inputs, choices, strict=False))

    def help_ahead(self, offered: SenderOts, ahead: Residues, flips: Residues) -> tuple[Residues, Residues]:
        """Return the helper's message and its shares of all products of masks, (products, words).

        Args:
            ahead: shares of the inputs that it knows ahead.
            flips: the chooser's first message.
        """
        shares = {s: _product(ahead, s) for s in self.products}
        messages: list[Residues] = []
        words = flips.shape[1]
        for slot, c in enumerate(self.choices):
            strings = _planes([_product(ahead, s - c) for s in self.needs[c]], words)
            flip = flips[slot - len(self.inputs)] if len(c) > 1 else None
            message, parts = offer(offered, slot, strings, flip)
            messages.append(message)
            for s, share in zip(self.needs[c], parts, strict=True):
                shares[s] = shares[s] ^ share
        return _planes(chain(*messages), words), _planes(shares.values(), words)

    def choose_ahead(self, ots: ReceiverOts, message: Residues) -> Residues:
        """Return the chooser's shares of all products of masks, (products, words); ``message``: the helper's."""
        masks = self._masks(ots.choices)
        shares = {s: _product(masks, s) for s in self.products}
        for slot, c in enumerate(self.choices):
            part, message = message[: len(self.needs[c])], message[len(self.needs[c]) :]
            for s, share in zip(self.needs[c], accept(ots, slot, part, _product(masks, c)), strict=True):
                shares[s] = shares[s] ^ share
        return _planes(shares.values(), ots.choices.shape[1])

    def choose(self, inputs: Residues, choices: Residues, products: Residues, fresh: Residues) -> Residues:
        """Return the chooser's message, (online planes, words).

        Args:
            inputs: shares of the inputs, (inputs, words).
            choices: choices of its transfers.
            products: shares of the products that it has ahead.
            fresh: random planes, (outputs, words): shares of the results that it knows ahead.
        """
        masks = self._masks(choices)
        public = {i: inputs[i] ^ masks[i] for i in self.inputs}
        return np.concatenate(
            [*(plane[None] for plane in public.values()), self._share(public, masks, products, inputs, True) ^ fresh]
        )

    def help(self, ahead: Residues, products: Residues, message: Residues) -> Residues:
        """Return the helper's shares of the results, (outputs, words); ``message``: the chooser's."""
        public = dict(zip(self.inputs, message, strict=False))
        return self._share(public, ahead, products, ahead, False) ^ message[len(self.inputs) :]

    def _share(
        self,
        public: dict[int, Residues],
        masks: Planes,
        products: Residues,
        linear: Residues,
        chooser: bool,
    ) -> Residues:
        """Return a party's share of the outputs: an input is its public part plus both parties' shares of its mask."""
        shares: dict[Factors, Residues] = dict(zip(self.products, products, strict=True))
        outputs: list[Residues] = []
        for terms in self.sums:
            total = np.zeros_like(linear[0])
            for s in terms:
                if len(s) == 1:
                    total = total ^ linear[next(iter(s))]
                    continue
                for c in _subsets(s, range(0 if chooser else 1, len(s) + 1)):
                    factors = [public[i] for i in sorted(s - c)]
                    mine = [] if not c else [masks[next(iter(c))] if len(c) == 1 else shares[c]]
                    total = total ^ np.bitwise_and.reduce(factors + mine)
            outputs.append(total)
        return np.array(outputs)


@dataclass(frozen=True)
class Lift:
    """A sum of products of split bits, of which one at most is 1, as a number in shares: the last message of a trip.

    The chooser learns its part m of each bit online, the helper knows its part l ahead. m + l mod 2 is l + m (1 - 2 l):
    a product is a sum of products of some m, each times a number that the helper offers ahead.

    Attributes:
        terms: products; inputs have numbers.
    """

    terms: tuple[Factors, ...]

    @cached_property
    def choices(self) -> list[Factors]:
        """Products of the chooser's bits that it chooses by, each a slot."""
        return _sorted(s for term in self.terms for s in _subsets(term, range(1, len(term) + 1)))

    def bits(self, inputs: Residues) -> list[Residues]:
        """Return what the chooser chooses, a plane each; ``inputs``: its parts."""
        return [_product(inputs, choice) for choice in self.choices]

    def numbers(self, ahead: Residues, m: int) -> list[Residues]:
        """Return the helper's numbers mod m, (values,): its addend, and one for each choice.

        Args:
            ahead: its parts of the inputs.
            m: more than the number of terms.
        """
        return [self._number(choice, ahead, m) for choice in (frozenset[int](), *self.choices)]

    def _number(self, choice: Factors, ahead: Residues, m: int) -> Residues:
        """Return the products of its other parts, each as often negated as a part of the choice is 1."""
        ones = ~np.zeros_like(ahead[0])
        rest = [_product(ahead, term - choice) if choice < term else ones for term in self.terms if choice <= term]
        total = sum(map(bits, rest), zeros(bits(ones)))
        negated = np.bitwise_xor.reduce([~ones, *(ahead[i] for i in choice)])
        return pick(negated, total, minus(zeros(total), total, m))


def _subsets(of: Factors, sizes: Iterable[int]) -> list[Factors]:
    return [frozenset(c) for size in sizes for c in combinations(sorted(of), size)]


def _sorted(sets: Iterable[Factors]) -> list[Factors]:
    return sorted(set(sets), key=lambda s: (len(s), sorted(s)))


def _product(factors: Planes, which: Factors) -> Residues:
    return np.bitwise_and.reduce([factors[i] for i in sorted(which)])


def _planes(planes: Iterable[Residues], words: int) -> Residues:
    rows: Sequence[Residues] = list(planes)
    return np.array(rows) if rows else np.empty((0, words), dtype=np.uint64)
