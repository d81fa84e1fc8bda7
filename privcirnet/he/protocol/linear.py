"""One encrypted linear layer between two parties (he.md section 3): three steps, bytes in between."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from privcirnet.he.encodings.layer import Layer
from privcirnet.he.engines.interface import ClientEngine, EvaluationKeys, ServerEngine
from privcirnet.he.program.interpreter import spread
from privcirnet.he.ring import modular, sampling, threads
from privcirnet.he.ring.modular import Integers, Residues


@dataclass(frozen=True)
class ServerLayer:
    """What the server holds for one layer.

    Attributes:
        layer: shape, block size, plan.
        weights: what the layer's ``encode_spectrum`` made.
        bias: int64, (K,) or of the output's shape (K, H', W').
        mask_bound: draw the output's mask in [bound + 1, t - bound] instead of uniformly, if not None.
    """

    layer: Layer
    weights: Any
    bias: Integers
    mask_bound: int | None = None


def request(layer: Layer, share: Residues, engine: ClientEngine) -> list[bytes]:
    """Client: transform and encrypt its share of the input, (C, H, W)."""
    return [engine.encrypt(row) for row in layer.encode_input(share, engine.parameters.plain_modulus)]


def reply(
    held: ServerLayer, share: Residues | None, messages: list[bytes], engine: ServerEngine, keys: EvaluationKeys
) -> tuple[list[bytes], Residues]:
    """Server: add its share, run the plan, subtract a mask from every slot, send.

    Args:
        held: the layer with its weights.
        share: the server's share of the input, (C, H, W); None for zero (the client's own image).
        messages: layer.ciphertexts_in ciphertexts.
        engine: the server's engine.
        keys: Galois keys.

    Returns:
        (replies, the server's share of the output (K, H', W')).
    """
    layer, t = held.layer, engine.parameters.plain_modulus
    mask = threads.beside(lambda: _mask(held, t))
    inputs = engine.receive_all(messages, None if share is None else layer.encode_input(share, t))
    outputs = layer.evaluate(held.weights, inputs, engine, keys)
    minus, own = mask()
    return engine.reply_all(outputs, minus, keys, layer.noise_bits(engine.parameters), layer.kept), own


def finish(layer: Layer, messages: list[bytes], engine: ClientEngine) -> Residues:
    """Client: decrypt and transform back; its share of the output, (K, H', W')."""
    kept = layer.kept or [None] * len(messages)
    slots = np.stack([engine.decrypt(message, places) for message, places in zip(messages, kept, strict=True)])
    return layer.decode_output(slots, engine.parameters.plain_modulus)


def _mask(held: ServerLayer, t: int) -> tuple[Residues, Residues]:
    """(minus a mask in slots (ciphertexts_out, n), the server's share (K, H', W') = the mask + bias).

    Uniform slots are a mask as they are: what they decode to is uniform too. A bounded mask has to be put into slots.
    """
    layer, shape = held.layer, held.layer.shape.output_shape
    bias = np.broadcast_to(modular.residues(spread(held.bias), t), shape)
    minus = sampling.uniform((layer.ciphertexts_out, layer.ring_degree), t)
    if held.mask_bound is None:
        return minus, modular.subtract(bias, layer.decode_output(minus, t), t)
    own = sampling.bounded(shape, held.mask_bound, t)
    return layer.encode_mask(modular.subtract(bias, own, t), minus, t), own
