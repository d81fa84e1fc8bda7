"""A spectral linear layer under encryption: run the plans of its pieces on an engine.

Order of work (he.md section 5): rotate in coefficient form, change to NTT form once for each turned input, multiply and
add in NTT form, change back once for each giant step, rotate and add those in coefficient form.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce

from privcirnet.he.encodings import spectral
from privcirnet.he.engine import Ciphertext, Keys, Plaintext, ServerEngine, check_sums
from privcirnet.he.layout import SpectralLayout
from privcirnet.he.modular import Integers, Residues
from privcirnet.he.params import Parameters, noise_bits
from privcirnet.he.pieces import Piece, PlacedPiece, place
from privcirnet.he.plan import Product
from privcirnet.he.shape import LinearShape


@dataclass(frozen=True)
class LinearLayer:
    """Everything public about an encrypted linear layer: what both parties know.

    Attributes:
        shape: dimensions.
        block_size: b.
        ring_degree: n.
        tile: (rows, columns) of output in a tile.
        pieces: cover all channel groups and tiles.
    """

    shape: LinearShape
    block_size: int
    ring_degree: int
    tile: tuple[int, int]
    pieces: tuple[Piece, ...]

    encoding = "cirencode"

    @cached_property
    def layout(self) -> SpectralLayout:
        """Which value sits in which cell."""
        return SpectralLayout(self.shape, self.block_size, self.tile)

    @cached_property
    def placed(self) -> tuple[PlacedPiece, ...]:
        """The pieces, each with its plan."""
        return place(self.layout, self.ring_degree, self.pieces)

    @property
    def transform_lengths(self) -> set[int]:
        """Lengths that must divide t - 1."""
        return self.layout.transform_lengths

    @property
    def rotations(self) -> int:
        """HE-Rot."""
        return sum(placed.plan.rotations for placed in self.placed)

    @property
    def pmults(self) -> int:
        """HE-Pmult."""
        return sum(placed.plan.pmults for placed in self.placed)

    @property
    def ciphertexts_in(self) -> int:
        """Ciphertexts that the client sends."""
        return sum(placed.plan.ciphertexts_in for placed in self.placed)

    @property
    def ciphertexts_out(self) -> int:
        """Ciphertexts that the server sends back."""
        return sum(placed.plan.ciphertexts_out for placed in self.placed)

    @property
    def products_per_sum(self) -> int:
        """Largest number of products that end up in one output ciphertext (for the noise)."""
        return max(placed.plan.products_per_sum for placed in self.placed)

    @property
    def column_steps(self) -> set[int]:
        """Column steps of the plans' lane steps: what Galois keys are for."""
        return {step * placed.lane_slots // 2 for placed in self.placed for step in placed.plan.rotation_steps}

    def encode_input(self, x: Residues, t: int) -> Residues:
        """See :func:`spectral.encode_input`."""
        return spectral.encode_input(self.layout, self.placed, x, t)

    @property
    def kept(self) -> None:
        """All coefficients of a reply are needed."""
        return None

    def noise_bits(self, parameters: Parameters) -> int:
        """log2 of a bound on a result's noise, from public data."""
        return noise_bits(self.ring_degree, parameters.plain_bits, self.products_per_sum)

    @property
    def spectrum_shape(self) -> tuple[int, ...]:
        """Shape of :meth:`spectrum`."""
        return self.layout.spectrum_shape

    def spectrum(self, rows: Integers, t: int) -> Residues:
        """See :func:`spectral.weight_spectrum`: each distinct slot value of the plaintexts, once."""
        return spectral.weight_spectrum(self.layout, rows, t)

    def encode_spectrum(self, spectrum: Residues, engine: ServerEngine, name: str = "") -> "EncodedWeights":
        """See :func:`encode_weights`."""
        return encode_weights(self, spectrum, engine, name)

    def plaintexts(self, spectrum: Residues) -> Iterator[tuple[tuple[int, ...], Residues]]:
        """Each product, as (piece, target, giant, baby, source), with its plaintext's slots (n,); zeros left out."""
        for index, placed in enumerate(self.placed):
            for p, slots in diagonals(self, placed, spectrum):
                yield (index, p.target, p.giant, p.baby, p.source), slots

    def evaluate(
        self, weights: "EncodedWeights", inputs: list[Ciphertext], engine: ServerEngine, keys: Keys
    ) -> list[Ciphertext]:
        """See :func:`evaluate`."""
        return evaluate(self, weights, inputs, engine, keys)

    def encode_mask(self, wanted: Residues, uniform: Residues, t: int) -> Residues:
        """See :func:`spectral.encode_mask`."""
        return spectral.encode_mask(self.layout, self.placed, wanted, uniform, t)

    def decode_output(self, slots: Residues, t: int) -> Residues:
        """See :func:`spectral.decode_output`."""
        return spectral.decode_output(self.layout, self.placed, slots, t)


EncodedPiece = dict[tuple[int, int], list[tuple[Product, Plaintext]]]
"""Part (target, giant) -> its products and their encoded diagonals."""
EncodedWeights = list[EncodedPiece]
"""One for each piece; pieces that are alike share theirs."""


def encode_weights(layer: LinearLayer, spectrum: Residues, engine: ServerEngine, name: str = "") -> EncodedWeights:
    """Encode every diagonal of a layer; all-zero ones are left out, because SEAL refuses a product with zero.

    Args:
        layer: the layer.
        spectrum: see :func:`spectral.weight_spectrum`.
        engine: the server's engine.
        name: for the error.

    Raises:
        RuleError: an inner sum has no product left.
    """
    known: dict[tuple[Piece, int], EncodedPiece] = {}
    for placed in layer.placed:
        key = placed.piece, placed.first_group
        if key not in known:
            known[key] = _encode_piece(layer, placed, spectrum, engine, name)
    return [known[placed.piece, placed.first_group] for placed in layer.placed]


def _encode_piece(
    layer: LinearLayer, placed: PlacedPiece, spectrum: Residues, engine: ServerEngine, name: str
) -> EncodedPiece:
    encoded: EncodedPiece = {part: [] for part in placed.plan.parts}
    for product, slots in diagonals(layer, placed, spectrum):
        encoded[product.target, product.giant].append((product, engine.encode_factor(slots)))
    missing = [part for part, products in encoded.items() if not products]
    check_sums(missing, name)
    return encoded


def diagonals(layer: LinearLayer, placed: PlacedPiece, spectrum: Residues) -> Iterator[tuple[Product, Residues]]:
    """Each product of a piece with its plaintext's slots (n,), all-zero ones left out."""
    for product in placed.plan.products:
        slots = spectral.diagonal_slots(layer.layout, placed, spectrum, product)
        if slots.any():
            yield product, slots


def evaluate(
    layer: LinearLayer,
    weights: EncodedWeights,
    inputs: list[Ciphertext],
    engine: ServerEngine,
    keys: Keys,
) -> list[Ciphertext]:
    """Run the plans.

    Args:
        layer: the layer.
        weights: encoded diagonals from :func:`encode_weights`.
        inputs: layer.ciphertexts_in ciphertexts in coefficient form.
        engine: the server's engine.
        keys: Galois keys for ``layer.column_steps``.

    Returns:
        layer.ciphertexts_out ciphertexts in coefficient form, piece by piece in the order of ``plan.outputs``.
    """
    found: list[Ciphertext] = []
    for placed, encoded in zip(layer.placed, weights, strict=True):
        found += _Run(placed, engine, keys).evaluate(encoded, inputs[placed.inputs])
    return found


@dataclass(frozen=True)
class _Run:
    """One piece on an engine."""

    placed: PlacedPiece
    engine: ServerEngine
    keys: Keys

    def evaluate(self, weights: EncodedPiece, inputs: list[Ciphertext]) -> list[Ciphertext]:
        plan, engine = self.placed.plan, self.engine
        turned = {(s, baby): engine.to_ntt(self._turn(inputs[s], baby)) for s, baby in plan.turned}
        sums: dict[tuple[int, int], Ciphertext] = {}
        for (target, giant), products in weights.items():
            inner, output = self._inner_sum(products, turned), (target, giant)
            if not plan.giants_on_shares:
                inner, output = self._turn(inner, giant * plan.baby_steps), (target, 0)
            sums[output] = inner if output not in sums else engine.add(sums[output], inner)
        return [self._folded(sums[output]) for output in plan.outputs]

    def _inner_sum(
        self, products: list[tuple[Product, Plaintext]], turned: Mapping[tuple[int, int], Ciphertext]
    ) -> Ciphertext:
        engine = self.engine
        terms = (engine.multiply(turned[product.source, product.baby], plaintext) for product, plaintext in products)
        return engine.from_ntt(reduce(engine.add, terms))

    def _folded(self, ciphertext: Ciphertext) -> Ciphertext:
        for step in self.placed.plan.fold_rotations:
            ciphertext = self.engine.add(ciphertext, self._turn(ciphertext, step))
        return ciphertext

    def _turn(self, ciphertext: Ciphertext, lanes: int) -> Ciphertext:
        columns = lanes * self.placed.lane_slots // 2
        return self.engine.rotate(ciphertext, columns, self.keys) if lanes else ciphertext
