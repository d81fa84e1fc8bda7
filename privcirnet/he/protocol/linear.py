"""One encrypted linear layer between two parties (he.md section 3): three steps, bytes in between."""

from dataclasses import dataclass

import numpy as np

from privcirnet.he import modular
from privcirnet.he.encodings import spectral
from privcirnet.he.engine import ClientEngine, Keys, ServerEngine
from privcirnet.he.linear import EncodedWeights, LinearLayer, evaluate
from privcirnet.he.modular import Integers, Residues
from privcirnet.he.params import noise_bits
from privcirnet.he.protocol import shares


@dataclass(frozen=True)
class ServerLayer:
    """What the server holds for one layer.

    Attributes:
        layer: shape, block size, plan.
        weights: encoded diagonals.
        bias: int64 (K,).
        mask_bound: draw the output's mask in [bound + 1, t - bound] instead of uniformly, if not None.
    """

    layer: LinearLayer
    weights: EncodedWeights
    bias: Integers
    mask_bound: int | None = None


def request(layer: LinearLayer, share: Residues, engine: ClientEngine) -> list[bytes]:
    """Client: transform and encrypt its share of the input, (C, H, W)."""
    slots = spectral.encode_input(layer.layout, layer.plan, share, engine.parameters.plain_modulus)
    return [engine.encrypt(row) for row in slots]


def reply(
    held: ServerLayer, share: Residues | None, messages: list[bytes], engine: ServerEngine, keys: Keys
) -> tuple[list[bytes], Residues]:
    """Server: add its share, run the plan, subtract a mask from every slot, send.

    Args:
        held: the layer with its weights.
        share: the server's share of the input, (C, H, W); None for zero (the client's own image).
        messages: plan.ciphertexts_in ciphertexts.
        engine: the server's engine.
        keys: Galois keys.

    Returns:
        (replies, the server's share of the output (K, H', W')).
    """
    layer, t = held.layer, engine.parameters.plain_modulus
    inputs = [engine.receive(message) for message in messages]
    if share is not None:
        slots = spectral.encode_input(layer.layout, layer.plan, share, t)
        inputs = [engine.add_plain(c, engine.encode(row)) for c, row in zip(inputs, slots, strict=True)]
    outputs = evaluate(layer, held.weights, inputs, engine, keys)
    mask, own = _draw_mask(held, t)
    everywhere = shares.uniform((layer.plan.ciphertexts_out, layer.ring_degree), t)
    slots = spectral.encode_mask(layer.layout, layer.plan, mask, everywhere, t)
    masked = [engine.subtract_plain(c, engine.encode(row)) for c, row in zip(outputs, slots, strict=True)]
    parameters = engine.parameters
    noise = noise_bits(parameters.ring_degree, parameters.plain_bits, layer.plan.products_per_sum)
    return [engine.reply(ciphertext, keys, noise) for ciphertext in masked], own


def finish(layer: LinearLayer, messages: list[bytes], engine: ClientEngine) -> Residues:
    """Client: decrypt and transform back; its share of the output, (K, H', W')."""
    slots = np.stack([engine.decrypt(message) for message in messages])
    return spectral.decode_output(layer.layout, layer.plan, slots, engine.parameters.plain_modulus)


def _draw_mask(held: ServerLayer, t: int) -> tuple[Residues, Residues]:
    """(mask over the padded output (K, N1, N2), the server's share (K, H', W') = mask + bias at wanted positions)."""
    channels, height, width = held.layer.shape.output_shape
    bias = modular.residues(held.bias, t)[:, None, None]
    mask = shares.uniform((channels, *held.layer.layout.extent), t)
    if held.mask_bound is not None:
        own = shares.bounded((channels, height, width), held.mask_bound, t)
        mask[:, :height, :width] = modular.subtract(own, np.broadcast_to(bias, own.shape), t)
    wanted = mask[:, :height, :width]
    return mask, modular.add(wanted, np.broadcast_to(bias, wanted.shape), t)
