"""Arithmetic mod t in clear, by numpy: what the online phase computes with."""

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.encodings.integer import Values, expand_rows
from privcirnet.he.encodings.layer import Layer
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues


class ClearLinear:
    def __init__(self, layer: Layer, rows: Values, t: int) -> None:
        self.shape, self.t = layer.shape, t
        dense = expand_rows(rows, layer.block_size)
        self.weights = modular.residues(dense, t).reshape(layer.shape.groups, -1, int(np.prod(dense.shape[1:])))

    def apply(self, share: Residues, bias: Residues | None = None) -> Residues:
        shape = self.shape
        padded = np.pad(share, ((0, 0), (shape.padding, shape.padding), (shape.padding, shape.padding)))
        every = np.lib.stride_tricks.sliding_window_view(padded, (shape.kernel, shape.kernel), axis=(1, 2))
        windows = every[:, :: shape.stride, :: shape.stride]
        columns = windows.transpose(0, 3, 4, 1, 2).reshape(shape.groups, -1, windows.shape[1] * windows.shape[2])
        found = modular.matmul(self.weights, columns, self.t).reshape(shape.output_shape)
        return found if bias is None else modular.add(found, bias, self.t)


def clear_linear(layer: Layer, rows: Values, t: int) -> ClearLinear:
    return ClearLinear(layer, rows, t)


def multiply(left: Residues, right: Residues, groups: int, t: int) -> Residues:
    a, b = (share.reshape(groups, -1, share.shape[1]) for share in (left, right))
    return modular.matmul(b.swapaxes(1, 2), a, t).reshape(-1, left.shape[1], 1)


def answer(client_z: Residues, d: Residues, u: Residues, t: int) -> Residues:
    return modular.add(modular.multiply(modular.add(client_z, client_z, t), d, t), u, t)


def finish(z: Residues, e: Residues, u: Residues, t: int) -> Residues:
    return modular.add(modular.add(modular.multiply(z, z, t), e, t), u, t)


def packed_bytes(count: int, t: int) -> int:
    return -(-count * (t - 1).bit_length() // 8)


def pack(values: Residues, t: int) -> bytes:
    flat = np.ascontiguousarray(values.reshape(-1), dtype="<u8")
    bits = np.unpackbits(flat.view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
    return np.packbits(bits[:, : (t - 1).bit_length()].reshape(-1), bitorder="little").tobytes()


def unpack(message: bytes, shape: tuple[int, ...], t: int) -> Residues:
    count, width = int(np.prod(shape)), (t - 1).bit_length()
    if len(message) != packed_bytes(count, t):
        raise RuleError("packed values must have their length", got=f"{len(message)} bytes", remedy="send it again")
    bits = np.unpackbits(np.frombuffer(message, np.uint8), bitorder="little")
    if bits[count * width :].any():
        raise RuleError("packed values must end in zeros", got="other bits", remedy="send it again")
    words = np.zeros((count, 64), dtype=np.uint8)
    words[:, :width] = bits[: count * width].reshape(count, width)
    found = np.packbits(words, axis=1, bitorder="little").view("<u8").astype(np.uint64).reshape(shape)
    if (found >= t).any():
        raise RuleError("packed values must be under t", got=int(found.max()), remedy="send it again")
    return found
