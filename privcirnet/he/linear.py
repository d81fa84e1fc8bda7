"""A linear layer under encryption: run a plan on an engine.

Order of work (he.md section 5): rotate in coefficient form, change to NTT form once for each turned input, multiply and
add in NTT form, change back once for each giant step, rotate and add those in coefficient form.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce

from privcirnet.errors import RuleError
from privcirnet.he.encodings import spectral
from privcirnet.he.engine import Ciphertext, Keys, Plaintext, ServerEngine
from privcirnet.he.layout import LinearShape, SpectralLayout
from privcirnet.he.modular import Residues
from privcirnet.he.plan import LinearPlan, Product

ENCODING = "cirencode"


@dataclass(frozen=True)
class LinearLayer:
    """Everything public about an encrypted linear layer: what both parties know.

    Attributes:
        shape: dimensions.
        block_size: b.
        ring_degree: n.
        baby_steps: B.
        giants_on_shares: see :class:`LinearPlan`.
        folds_on_shares: see :class:`LinearPlan`.
    """

    shape: LinearShape
    block_size: int
    ring_degree: int
    baby_steps: int
    giants_on_shares: bool = False
    folds_on_shares: bool = True

    @cached_property
    def layout(self) -> SpectralLayout:
        """Which value sits in which slot."""
        return SpectralLayout(self.shape, self.block_size, self.ring_degree)

    @cached_property
    def plan(self) -> LinearPlan:
        """Which operations are done."""
        layout = self.layout
        return LinearPlan(
            layout.lanes,
            layout.blocks_in,
            layout.blocks_out,
            self.baby_steps,
            self.giants_on_shares,
            self.folds_on_shares,
        )

    @property
    def column_steps(self) -> set[int]:
        """Column steps of the plan's lane steps: what Galois keys are for."""
        return {step * self.columns_per_lane for step in self.plan.rotation_steps}

    @property
    def columns_per_lane(self) -> int:
        """L' / 2."""
        return self.layout.lane_slots // 2


EncodedWeights = dict[tuple[int, int], list[tuple[Product, Plaintext]]]
"""Part (target, giant) -> its products and their encoded diagonals."""


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
    encoded: EncodedWeights = {part: [] for part in layer.plan.parts}
    for product, slots in diagonals(layer, spectrum):
        encoded[product.target, product.giant].append((product, engine.encode_factor(slots)))
    missing = [part for part, products in encoded.items() if not products]
    if missing:
        raise RuleError(
            "every inner sum of a layer needs a weight that is not zero",
            got=f"layer {name}, parts {missing}",
            remedy="train the layer further or remove its dead channels",
        )
    return encoded


def diagonals(layer: LinearLayer, spectrum: Residues) -> Iterator[tuple[Product, Residues]]:
    """Each product of the plan with its plaintext's slots (n,), all-zero ones left out."""
    for product in layer.plan.products:
        slots = spectral.diagonal_slots(layer.layout, layer.plan, spectrum, product)
        if slots.any():
            yield product, slots


def evaluate(
    layer: LinearLayer,
    weights: EncodedWeights,
    inputs: list[Ciphertext],
    engine: ServerEngine,
    keys: Keys,
) -> list[Ciphertext]:
    """Run the plan.

    Args:
        layer: the layer.
        weights: encoded diagonals from :func:`encode_weights`.
        inputs: plan.ciphertexts_in ciphertexts in coefficient form.
        engine: the server's engine.
        keys: Galois keys for ``layer.column_steps``.

    Returns:
        plan.ciphertexts_out ciphertexts in coefficient form, in the order of ``plan.outputs``.
    """
    turned = _turned_inputs(layer, inputs, engine, keys)
    sums: dict[tuple[int, int], Ciphertext] = {}
    for (target, giant), products in weights.items():
        inner = _inner_sum(products, turned, engine)
        if not layer.plan.giants_on_shares:
            inner = _turn(layer, inner, giant * layer.baby_steps, engine, keys)
            giant = 0  # noqa: PLW2901
        known = sums.get((target, giant))
        sums[target, giant] = inner if known is None else engine.add(known, inner)
    return [_folded(layer, sums[output], engine, keys) for output in layer.plan.outputs]


def _turned_inputs(
    layer: LinearLayer, inputs: list[Ciphertext], engine: ServerEngine, keys: Keys
) -> dict[tuple[int, int], Ciphertext]:
    """(source, baby) -> input turned by baby lanes, in NTT form."""
    used = sorted({(p.source, p.baby) for p in layer.plan.products})
    return {(source, baby): engine.to_ntt(_turn(layer, inputs[source], baby, engine, keys)) for source, baby in used}


def _inner_sum(
    products: list[tuple[Product, Plaintext]], turned: Mapping[tuple[int, int], Ciphertext], engine: ServerEngine
) -> Ciphertext:
    terms = (engine.multiply(turned[product.source, product.baby], plaintext) for product, plaintext in products)
    return engine.from_ntt(reduce(engine.add, terms))


def _folded(layer: LinearLayer, ciphertext: Ciphertext, engine: ServerEngine, keys: Keys) -> Ciphertext:
    for step in layer.plan.fold_rotations:
        ciphertext = engine.add(ciphertext, _turn(layer, ciphertext, step, engine, keys))
    return ciphertext


def _turn(layer: LinearLayer, ciphertext: Ciphertext, lanes: int, engine: ServerEngine, keys: Keys) -> Ciphertext:
    return engine.rotate(ciphertext, lanes * layer.columns_per_lane, keys) if lanes else ciphertext
