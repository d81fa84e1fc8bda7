"""The product of two shared values between two parties, in one round: two linear layers whose weights are shares.

With a = a_c + a_s and b = b_c + b_s, both multiplied over the channels of each group as the program's product says,

    a b = a b_s + a_s b_c + a_c b_c.

The client sends Enc(a_c) and Enc(b_c). The first term is the layer of a with the server's share of b as weights, and
the server adds its share of a as to any layer's input; the second is the layer of b_c with the server's share of a as
weights. Each comes back under masks of its own. The client knows the third term.

Cost: what both layers' plans say, with every plaintext encoded anew, because shares are fresh for every image.
"""

import numpy as np

from privcirnet.he.encodings.integer import transpose
from privcirnet.he.encodings.spectral_layer import SpectralLayer, encode_weights
from privcirnet.he.engines.interface import ClientEngine, EvaluationKeys, ServerEngine
from privcirnet.he.program.interpreter import as_weights
from privcirnet.he.program.operations import Product
from privcirnet.he.protocol import linear
from privcirnet.he.protocol.linear import ServerLayer
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Integers, Residues

Pair = tuple[Residues, Residues]
"""Shares of the left value, (g k, A, 1), and of the right one, (g k, B, 1)."""


def request(product: Product, shares: Pair, engine: ClientEngine) -> list[bytes]:
    """Client: encrypt its shares of both values."""
    return [*linear.request(product.left, shares[0], engine), *linear.request(product.right, shares[1], engine)]


def reply(  # noqa: PLR0913, PLR0917
    product: Product,
    bias: Integers,
    shares: Pair,
    messages: list[bytes],
    engine: ServerEngine,
    keys: EvaluationKeys,
    mask_bound: int | None = None,
) -> tuple[list[bytes], Residues]:
    """Server: its part of the product from its shares of both values.

    Args:
        product: the operation.
        bias: int64, (g B,).
        shares: the server's.
        messages: ciphertexts of the left value, then of the right one.
        engine: the server's engine.
        keys: Galois keys.
        mask_bound: of the product's mask, None for uniform ones; the second term's mask alone is always uniform.

    Returns:
        (replies, the server's share of the product (g B, A, 1)).
    """
    (left, right), (straight, transposed), t = shares, (product.left, product.right), engine.parameters.plain_modulus
    none = np.zeros(transposed.shape.out_channels, dtype=np.int64)
    held = ServerLayer(transposed, _weights(transposed, left, engine), none)
    second, own = linear.reply(held, None, messages[straight.ciphertexts_in :], engine, keys)
    both = modular.add(modular.residues(bias, t)[:, None, None], transpose(own, product.groups), t)
    held = ServerLayer(straight, _weights(straight, right, engine), both.astype(np.int64), mask_bound)
    first, own = linear.reply(held, left, messages[: straight.ciphertexts_in], engine, keys)
    return [*first, *second], own


def finish(product: Product, shares: Pair, messages: list[bytes], engine: ClientEngine) -> Residues:
    """Client: its share of the product from its shares of both values and the replies."""
    t, count = engine.parameters.plain_modulus, product.left.ciphertexts_out
    first = linear.finish(product.left, messages[:count], engine)
    second = linear.finish(product.right, messages[count:], engine)
    sent = modular.add(first, transpose(second, product.groups), t)
    return modular.add(sent, multiply(product, shares, t), t)


def multiply(product: Product, shares: Pair, t: int) -> Residues:
    """The product of two shares in clear, (g B, A, 1)."""
    left, right = (share.reshape(product.groups, -1, share.shape[1]) for share in shares)
    return modular.matmul(right.swapaxes(1, 2), left, t).reshape(product.left.shape.output_shape)


def _weights(layer: SpectralLayer, share: Residues, engine: ServerEngine) -> object:
    """A share as encoded weights, of which nothing stays behind."""
    rows = as_weights(share, layer.shape.groups).astype(np.int64)
    spectrum = layer.spectrum(rows, engine.parameters.plain_modulus)
    return encode_weights(layer, spectrum, engine, keep=False)
