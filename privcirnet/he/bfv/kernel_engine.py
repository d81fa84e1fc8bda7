"""The server's engine on compiled kernels: encrypted linear layers at the speed of the memory, on all cores.

Ciphertexts are arrays of residues from the first byte to the last. So a stranger's bytes never reach a native parser,
and SEAL is not needed at all; :mod:`bfv.client` is the client's. Products, sums, plaintexts and modulus
switches give SEAL's words bit for bit. Rotations give SEAL's values with other noise of the same size.

Order of work for a circuit: the digits of each rotated input (hoisting); all its rotations; products and sums of a
block of outputs at a time, straight from the weights; giant steps added under all primes and divided once (double
hoisting). A circuit is cut into pieces first, which only bounds how much is in memory at a time: segments share no
rotated input (tiles, channel groups), and blocks are runs of outputs whose inner sums are computed together. See
docs/mathematics.md, "Engine order of work".
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from privcirnet.he.bfv.kernels import plaintexts, reply
from privcirnet.he.bfv.kernels.reply import PublicKey
from privcirnet.he.bfv.layer_circuit import LayerCircuit, Pair, PlaintextSource, fingerprint, multiplied
from privcirnet.he.bfv.noise import flood_bits
from privcirnet.he.bfv.parameters import Parameters, ReplyFormat, key_bytes
from privcirnet.he.bfv.weight_cache import CachedWeights, WeightCache
from privcirnet.he.ring.kernels import inner_products
from privcirnet.he.ring.kernels.inner_products import Terms
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.rlwe import switch_keys
from privcirnet.he.rlwe.kernels import gadget
from privcirnet.he.rlwe.kernels.gadget import Hoisted
from privcirnet.he.rlwe.kernels.rns import RnsRing, add_scaled
from privcirnet.he.rlwe.key_switching import ModulusChain
from privcirnet.he.rlwe.parameters import galois_element
from privcirnet.he.rlwe.switch_keys import KeySwitchingKeys, read, read_one
from privcirnet.he.rlwe.wire_bytes import Message, WireFormat, check_keys_length
from privcirnet.he.system.threads import count, each, ranges


@dataclass(frozen=True)
class ClientKeys:
    """A client's keys on the server.

    Attributes:
        switches: switching keys by name; SEAL's objects hold several.
    """

    switches: KeySwitchingKeys
    public: PublicKey


def public_key(message: Message, modulus: WireFormat, extended: RnsRing) -> PublicKey:
    """Return a client's public key, checked: a seeded encryption of zero.

    Args:
        modulus: modulus of the data primes.
        extended: ring of the data primes and a special one.

    Raises:
        RuleError: the bytes are not such a ciphertext.
    """
    return PublicKey.build(extended, extended.values(read_one(message, modulus)))


@dataclass(frozen=True)
class OutputBlock:
    """Consecutive outputs and the products of their inner sums.

    Attributes:
        terms: products of the sums, as (rotated input counted from the segment's first, weight).
    """

    outputs: slice
    sums: slice
    terms: Terms


@dataclass(frozen=True)
class Segment:
    """Consecutive blocks that need no rotated input of others.

    Attributes:
        rotated: entries of the circuit's ``rotated`` that the blocks need.
        blocks: in the order of the outputs.
    """

    rotated: slice
    blocks: tuple[OutputBlock, ...]


@dataclass(frozen=True)
class Limits:
    """Most numbers of items in memory at a time, if the circuit can be cut."""

    rotated: int
    sums: int
    products: int


def schedule(circuit: LayerCircuit, present: Sequence[bool], limits: Limits) -> tuple[Segment, ...]:
    """Cut a circuit into segments and blocks, each as large as the limits allow.

    A block has at least one output and a segment at least one block, whatever the limits are.

    Args:
        circuit: circuit whose outputs use inner sums, and inner sums rotated inputs, in ascending order.
        present: whether each weight is not zero; products with zero are left out.
        limits: limits on what is in memory at a time.

    Returns:
        segments in the order of the outputs.
    """
    nonzero = np.array(present, dtype=bool)
    flat = np.array([pair for pairs in circuit.sums for pair in pairs], dtype=np.int64).reshape(-1, 2)
    ends = np.array([0, *accumulate(map(len, circuit.sums))])
    needed = nonzero[flat[:, 1]]
    flat, ends = flat[needed], np.concatenate([[0], np.cumsum(needed)])[ends]
    segments: list[Segment] = []
    for rotated, outputs in _segments(circuit, limits.rotated):
        blocks = [_block(circuit, part, flat, ends, rotated.start) for part in _blocks(circuit, outputs, limits)]
        segments.append(Segment(rotated, tuple(blocks)))
    return tuple(segments)


def _segments(circuit: LayerCircuit, most_rotated: int) -> Iterator[tuple[slice, slice]]:
    """Yield (rotated, outputs) of each segment: the cut is where nothing that was rotated is needed again."""
    rotated = output = needed = first_rotated = first_output = 0
    for output, terms in enumerate(circuit.outputs):
        used = [index for number, _ in terms for index, _ in circuit.sums[number]]
        last = max(number for number, _ in terms)
        rotated = max(rotated, max(used) + 1)
        needed = max([needed, *circuit.last_uses[first_rotated:rotated]])
        complete = needed <= last
        following = circuit.outputs[output + 1 : output + 2]
        if complete and (not following or rotated - first_rotated >= most_rotated):
            yield slice(first_rotated, rotated), slice(first_output, output + 1)
            first_rotated, first_output = rotated, output + 1


def _blocks(circuit: LayerCircuit, outputs: slice, limits: Limits) -> Iterator[slice]:
    first, sums, products = outputs.start, 0, 0
    for output in range(outputs.start, outputs.stop):
        sizes = [len(circuit.sums[number]) for number, _ in circuit.outputs[output]]
        if first < output and (sums + len(sizes) > limits.sums or products + sum(sizes) > limits.products):
            yield slice(first, output)
            first, sums, products = output, 0, 0
        sums, products = sums + len(sizes), products + sum(sizes)
    yield slice(first, outputs.stop)


def _block(circuit: LayerCircuit, outputs: slice, flat: Integers, ends: Integers, first_rotated: int) -> OutputBlock:
    numbers = [number for terms in circuit.outputs[outputs] for number, _ in terms]
    sums = slice(numbers[0], numbers[-1] + 1)
    if numbers != list(range(sums.start, sums.stop)):
        raise ValueError("sums of a block of outputs must follow each other")
    pairs = flat[ends[sums.start] : ends[sums.stop]] - np.array([first_rotated, 0])
    return OutputBlock(outputs, sums, Terms(pairs, ends[sums.start : sums.stop + 1] - ends[sums.start]))


def shared_out(terms: Sequence[Pair], limit: int) -> list[Sequence[Pair]]:
    """Return an output's terms in runs of like size, each with a rotation if there are several.

    Args:
        terms: (inner sum, column step) of each.
        limit: most runs.
    """
    runs = max(1, min(limit, sum(bool(step) for _, step in terms)))
    ordered = sorted(terms, key=lambda term: not term[1])
    return [ordered[first::runs] for first in range(runs)]


LIMITS = Limits(rotated=64, sums=128, products=1024)
"""Limits on a layer's work in pieces: 25 MB of rotated inputs, 50 MB of sums and 200 MB of weights at n = 8192."""
_CHUNKS = 4
"""Chunks of words in a task: long enough for a thread to be worth waking."""


@dataclass(frozen=True)
class KernelCiphertext:
    """Residues in coefficient form, or in the kernel's NTT order.

    Attributes:
        residues: shape (2, L, n) for L data primes. With L + 1 primes the ciphertext is extended: P times the
            ciphertext, before the division by P that ends a sum of rotations.
        ntt: whether it is in the NTT order.
    """

    residues: Residues
    ntt: bool


@dataclass(frozen=True)
class KernelWeights:
    """A layer's encoded weights and the work that its circuit comes to.

    Attributes:
        cached: plaintexts in the NTT domain, split, as far as the cache holds them.
    """

    cached: CachedWeights
    segments: tuple[Segment, ...]


class KernelServer:
    """The server's side: evaluation only.

    Args:
        parameters: n, q, t.
        cache: cache of encoded weights; None: one without a limit.
    """

    def __init__(self, parameters: Parameters, cache: WeightCache | None = None) -> None:
        rlwe, data = parameters.rlwe, parameters.rlwe.data_primes
        self.parameters, self._cache = parameters, cache or WeightCache()
        self.counts: Counter[str] = Counter()
        self._chain, self._modulus = ModulusChain(rlwe), rlwe.modulus(len(data))
        self._ring = self._chain.ring
        self._plain = plaintexts.plain(parameters.plain_modulus, data, rlwe.ring_degree)
        self._form = reply.reply_tables(
            self._ring, self._plain, ReplyFormat.of(parameters, data), flood_bits(parameters)
        )

    def load_keys(self, message: bytes, steps: Collection[int]) -> ClientKeys:
        data, n = self._modulus, self._ring.degree
        elements, at = sorted(galois_element(step, n) for step in steps), data.seeded_size()
        check_keys_length(message, at + key_bytes(self.parameters) * len(elements))
        key = public_key(message[:at], data, self._ring)
        loaded = switch_keys.load_all(self._chain, len(data.primes), message[at:], len(elements))
        switches = KeySwitchingKeys(zip(elements, loaded, strict=True))
        return ClientKeys(switches, key)

    def receive_all(
        self, messages: Sequence[bytes], addends: Residues | None, sent: Sequence[Integers] | None = None
    ) -> list[KernelCiphertext]:
        """Return the ciphertexts, in coefficient form."""

        def received(index: int, residues: Residues) -> KernelCiphertext:
            if addends is not None:
                plaintexts.add(residues[0], addends[index], self._plain)
            return KernelCiphertext(residues, ntt=False)

        return read(messages, self._modulus, received, sent)

    def encode_weights(
        self,
        circuit: LayerCircuit,
        slots: PlaintextSource,
        *,
        keep: bool = True,
        present: Sequence[bool] | None = None,
    ) -> KernelWeights:
        """Encode weights; those of one use are encoded where a circuit needs them."""
        if present is None:
            present = each(lambda weight: not keep or bool(slots[weight].any()), range(len(slots)))

        def encode(target: Residues, numbers: Integers) -> None:
            each(lambda pair: self._encode(target[pair[0]], slots[int(pair[1])]), enumerate(numbers))

        shape = len(slots), len(self._modulus.primes), self._modulus.ring_degree
        cache = self._cache if keep else WeightCache(limit=0)
        cached = cache.layer(shape, encode, lambda: fingerprint(slots, self.parameters))
        return KernelWeights(cached, schedule(circuit, multiplied(circuit, present), LIMITS))

    def _encode(self, target: Residues, slots: Residues) -> None:
        plaintexts.factor(target, slots, self._plain, self._ring.tables)
        self._ring.split(target[None])

    def evaluate(
        self, circuit: LayerCircuit, weights: KernelWeights, inputs: Sequence[KernelCiphertext], keys: ClientKeys
    ) -> list[KernelCiphertext]:
        outputs: list[KernelCiphertext] = []
        for segment in weights.segments:
            rotated = self._rotated(circuit.rotated[segment.rotated], inputs, keys)
            for block in segment.blocks:
                outputs += self._outputs(circuit, block, self._sums(block, rotated, weights.cached), keys)
        weights.cached.release()
        return outputs

    def multiply_all(self, ciphertexts: Sequence[KernelCiphertext], factors: Residues) -> list[KernelCiphertext]:
        self.counts["pmult"] += len(ciphertexts)

        def product(index: int) -> KernelCiphertext:
            residues, inputs = ciphertexts[index].residues, self._ring.inputs(1, len(self._modulus.primes))
            weight = np.empty((1, *residues.shape[1:]), dtype=np.uint64)
            self._encode(weight[0], factors[index])
            self._ring.place(inputs, 0, self._ring.values(residues))
            return KernelCiphertext(inner_products.inner_product(inputs, 0, weight, self._ring.moduli), ntt=True)

        return each(product, range(len(ciphertexts)))

    def reply_all(
        self,
        ciphertexts: Sequence[KernelCiphertext],
        addends: Residues,
        keys: ClientKeys,
        sent: Sequence[Integers] | None = None,
    ) -> list[bytes]:
        """Return the replies; the ciphertexts are overwritten."""

        def finished(index: int) -> bytes:
            ciphertext, places = ciphertexts[index], None if sent is None else sent[index]
            values = ciphertext.residues if ciphertext.ntt else self._ring.values(ciphertext.residues)
            return reply.reply(values, keys.public, addends[index], self._form, places)

        return each(finished, range(len(ciphertexts)))

    def _rotated(self, rotated: Sequence[Pair], inputs: Sequence[KernelCiphertext], keys: ClientKeys) -> Residues:
        """Return the inputs of products: all (input, step) of a segment, (chunks, rotated, 2, CHUNK)."""
        chunks, places = (
            self._ring.inputs(len(rotated), len(self._modulus.primes)),
            defaultdict[int, list[tuple[int, int]]](list),
        )
        for place, (source, step) in enumerate(rotated):
            places[source].append((place, step))

        def hoisted(source: int) -> Hoisted | None:
            """Return the digits that an input's turns share, if any; place the input itself if it is needed too."""
            residues, steps = inputs[source].residues, [step for _, step in places[source]]
            shared = self._hoisted(residues) if any(steps) else None
            for place, step in places[source]:
                if not step:
                    polynomials, ready = (shared[0], True) if shared else (residues, inputs[source].ntt)
                    self._ring.place(chunks, place, polynomials if ready else self._ring.values(polynomials))
            return shared

        def rotate(task: tuple[Hoisted, int, int]) -> None:
            shared, place, step = task
            gadget.rotate(chunks, place, *shared, *self._turn(step, keys), self._ring)

        pairs = zip(places.values(), each(hoisted, places), strict=True)
        tasks = [(shared, place, step) for turns, shared in pairs if shared for place, step in turns if step]
        each(rotate, tasks)
        self.counts["rotate"] += len(tasks)
        return chunks

    def _hoisted(self, residues: Residues) -> Hoisted:
        """Return the digits that all rotations of a ciphertext (2, L, n) in coefficient form share."""
        _, limbs, n = residues.shape
        values, digits = np.empty_like(residues), np.empty((limbs, limbs + 1, n), dtype=np.uint64)
        gadget.hoist(values, digits, residues, self._ring)
        return values, digits

    def _turn(self, step: int, keys: ClientKeys) -> tuple[Residues, Integers]:
        """Return a rotation's key and its permutation of values."""
        element = galois_element(step, self._ring.degree)
        return keys.switches[element], self._chain.order(element)

    def _sums(self, block: OutputBlock, rotated: Residues, cached: CachedWeights) -> Residues:
        """Return the inner sums of a block, (sums, 2, L, n)."""
        shape = block.sums.stop - block.sums.start, 2, len(self._modulus.primes), self._modulus.ring_degree
        sums = np.empty(shape, dtype=np.uint64)
        numbers = block.terms.pairs[:, 1]
        weights, first = cached.fetch(int(numbers.min()), int(numbers.max()) + 1)
        terms = Terms(block.terms.pairs - np.array([0, first]), block.terms.first)

        def some(part: range) -> None:
            inner_products.multiply_accumulate(
                sums, rotated, weights, terms, self._ring.moduli, (part.start, part.stop)
            )

        each(some, ranges(rotated.shape[0], _CHUNKS))
        self.counts["pmult"] += len(block.terms.pairs)
        return sums

    def _outputs(
        self, circuit: LayerCircuit, block: OutputBlock, sums: Residues, keys: ClientKeys
    ) -> list[KernelCiphertext]:
        """Return a block's outputs: giant steps, their terms shared out where threads outnumber outputs, and folds."""
        start, numbers = block.sums.start, range(block.outputs.start, block.outputs.stop)
        limit = -(-count() // len(numbers))
        shared = {index: shared_out(circuit.outputs[index], limit) for index in numbers}

        def added(terms: Sequence[Pair]) -> Residues:
            return self._added([(sums[number - start], step) for number, step in terms], keys)

        parts = iter(each(added, [terms for split in shared.values() for terms in split]))
        totals = {index: self._together([next(parts) for _ in split]) for index, split in shared.items()}

        def output(index: int) -> KernelCiphertext:
            total = totals[index]
            for step in circuit.folds[index]:
                values = gadget.divided(total, self._ring)
                total = self._added([(values, 0), (values, step)], keys)
            return KernelCiphertext(total, ntt=True)

        folded = any(circuit.folds[index] for index in numbers)  # else there is nothing to share out
        done = each(output, numbers) if folded else [*map(output, numbers)]
        steps = [step for terms in circuit.outputs[block.outputs] for _, step in terms]
        self.counts["rotate"] += sum(map(bool, steps)) + sum(map(len, circuit.folds[block.outputs]))
        return done

    def _added(self, terms: Sequence[tuple[Residues, int]], keys: ClientKeys) -> Residues:
        """Return the sum of values (2, L, n), each rotated by its step; it is extended if any is rotated."""
        if len(terms) == 1 and not terms[0][1]:
            return terms[0][0]
        total = np.zeros((2, len(self._ring.primes), self._ring.degree), dtype=np.uint64)
        for values, step in terms:
            if step:
                gadget.add_rotated(total, values, *self._turn(step, keys), self._ring)
            else:
                add_scaled(total, values, self._ring)
        return total

    def _together(self, parts: Sequence[Residues]) -> Residues:
        """Return the sum of parts, all extended; a single one as it is."""
        total = parts[0]
        primes = self._ring.tables.primes[:, None]
        for part in parts[1:]:
            total = total + part
            total -= np.where(total >= primes, primes, np.uint64(0))
        return total
