"""AES-128 inside kernels: by the processor's instructions, or by OpenSSL where there are none.

The type of a cipher says what computes it, and a kernel is compiled for each type that it is called with. LLVM ends the
process if it is to emit an instruction that its target lacks, so :func:`cipher` asks for the target's features first.
The time does not depend on what is encrypted.
"""

import ctypes
import threading
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher as OpenSslCipher
from cryptography.hazmat.primitives.ciphers import algorithms, modes
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.jit import features

# Numba has no type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportCallIssue=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportOptionalCall=false

GROUP = 16
"""Blocks of a buffer that are encrypted together."""
_ROUNDS, _REGISTERS = 10, 8


class Vaes(NamedTuple):
    """A key for registers of two blocks; ``keys``: round keys, each twice, (11, 4)."""

    keys: Residues


class AesNi(NamedTuple):
    """A key for registers of one block; ``keys``: round keys, (11, 2)."""

    keys: Residues


class OpenSsl(NamedTuple):
    """A key for OpenSSL.

    Attributes:
        key: (2,).
        function: address of what encrypts, in this process.
    """

    key: Residues
    function: int


Aes: TypeAlias = Vaes | AesNi | OpenSsl


def cipher(key: bytes, kind: type[Aes] | None = None) -> Aes:
    """Return the cipher of a public key of 16 bytes; ``kind``: None for the fastest that this host has."""
    kind = kind or kinds()[0]
    if kind is OpenSsl:
        return OpenSsl(np.frombuffer(key, dtype=np.uint64), _OPENSSL_ADDRESS)
    keys = np.frombuffer(_round_keys(key), dtype=np.uint64).reshape(-1, 1, 2)
    return kind(np.repeat(keys, _BLOCKS[kind], axis=1).reshape(_ROUNDS + 1, -1))


@cache
def kinds() -> tuple[type[Aes], ...]:
    """Return what this host has, the fastest first."""
    vectors = {"vaes", "avx2"} <= features()
    return (*([Vaes] if vectors else []), *([AesNi] if "aes" in features() else []), OpenSsl)


def encrypt(cipher: Aes, blocks: Residues, count: int) -> None:
    """Encrypt the first blocks of a buffer in place; in kernels only.

    Args:
        blocks: two words each, (2 x a multiple of GROUP,).
        count: number of blocks; those up to the next multiple of GROUP are changed too.

    Raises:
        RuntimeError: OpenSSL was interrupted.
    """
    raise NotImplementedError


def room(cipher: Aes) -> int:
    """Return the blocks of a buffer that fits the cache and makes a call of the cipher worth it; in kernels only."""
    raise NotImplementedError


@overload(room)
def _room(cipher):
    blocks = 5 * GROUP * (8 if cipher.instance_class in _BLOCKS else 64)
    return lambda cipher: blocks


def add_images(cipher: Aes, blocks: Residues, count: int) -> None:
    """Add to each of the first blocks what it is encrypted to; arguments and errors as of :func:`encrypt`."""
    raise NotImplementedError


def _computed(adds: bool) -> Any:
    """Return what compiles :func:`encrypt`, or :func:`add_images`."""

    def choose(cipher, blocks, count):
        rounds = _INSTRUCTIONS.get((cipher.instance_class, adds))

        def by_instructions(cipher, blocks, count):
            for start in range(0, count, GROUP):
                rounds(cipher.keys, blocks, start)

        def by_openssl(cipher, blocks, count):
            if _call(cipher.function, cipher.key, blocks, count, adds) != count:
                raise RuntimeError("OpenSSL was interrupted")

        return by_instructions if rounds else by_openssl

    return choose


overload(encrypt)(_computed(adds=False))
overload(add_images)(_computed(adds=True))

_INDEX = ir.IntType(64)


def _array(context: Any, builder: Any, signature: Any, arguments: Any, i: int) -> Any:
    return context.make_array(signature.args[i])(context, builder, arguments[i])


def _instructions(kind: type[Aes], adds: bool) -> Any:
    """Return what computes the images of a group of blocks, by intrinsics of LLVM."""
    width = _BLOCKS[kind]
    register = ir.VectorType(ir.IntType(64), 2 * width)

    @intrinsic
    def rounds(typing, keys, blocks, start):
        def emit(context, builder, signature, arguments):
            round_keys, first = (
                builder.bitcast(builder.gep(array.data, [index]), register.as_pointer())
                for array, index in (
                    (_array(context, builder, signature, arguments, 0), _INDEX(0)),
                    (_array(context, builder, signature, arguments, 1), builder.shl(arguments[2], _INDEX(1))),
                )
            )
            inner, last = (
                cgutils.get_or_insert_function(
                    builder.module,
                    ir.FunctionType(register, [register, register]),
                    f"llvm.x86.aesni.{name}" + (f".{128 * width}" if width > 1 else ""),
                )
                for name in ("aesenc", "aesenclast")
            )
            loaded = [builder.load(builder.gep(round_keys, [_INDEX(i)]), align=8) for i in range(_ROUNDS + 1)]
            for group in range(0, GROUP // width, _REGISTERS):
                places = [builder.gep(first, [_INDEX(group + i)]) for i in range(_REGISTERS)]
                states = [builder.xor(builder.load(place, align=8), loaded[0]) for place in places]
                for i in range(1, _ROUNDS):
                    states = [builder.call(inner, [state, loaded[i]]) for state in states]
                states = [builder.call(last, [state, loaded[_ROUNDS]]) for state in states]
                for place, state in zip(places, states, strict=True):
                    image = builder.xor(state, builder.load(place, align=8)) if adds else state
                    builder.store(image, place, align=8)
            return context.get_dummy_value()

        return types.void(keys, blocks, types.intp), emit

    return rounds


_BLOCKS: dict[type[Aes], int] = {Vaes: 2, AesNi: 1}
_INSTRUCTIONS: dict[tuple[type[Aes], bool], Any] = {
    (kind, adds): _instructions(kind, adds) for kind in _BLOCKS for adds in (False, True)
}


@intrinsic
def _call(typing, function, key, blocks, count, adds):
    """Call OpenSSL at an address; return the number of blocks that it did."""

    def emit(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], ir.FunctionType(_INDEX, [_INDEX] * 4).as_pointer())
        addresses = [builder.ptrtoint(_array(context, builder, signature, arguments, i).data, _INDEX) for i in (1, 2)]
        return builder.call(pointer, [*addresses, arguments[3], builder.zext(arguments[4], _INDEX)])

    return types.intp(types.intp, key, blocks, types.intp, types.boolean), emit


@ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_ssize_t)
def _openssl(key: int, blocks: int, count: int, adds: int) -> int:
    """Encrypt blocks in place and return their number; on an error ctypes returns 0."""
    words = np.frombuffer(memoryview((ctypes.c_uint64 * (2 * count)).from_address(blocks)), dtype=np.uint64)
    images = np.empty(2 * count + 2, dtype=np.uint64)  # the library wants two words behind what it writes
    encryptor = _encryptor(threading.get_ident(), ctypes.string_at(key, 16))
    encryptor.update_into(words.data.cast("B"), images.data.cast("B"))
    words[:] = words ^ images[:-2] if adds else images[:-2]
    return count


_OPENSSL_ADDRESS = ctypes.cast(_openssl, ctypes.c_void_p).value or 0


@lru_cache(maxsize=64)
def _encryptor(thread: int, key: bytes) -> Any:
    """Return OpenSSL's state of a key, which threads cannot share."""
    return OpenSslCipher(algorithms.AES(key), modes.ECB()).encryptor()


def _round_keys(key: bytes) -> bytes:
    """Return the round keys, as FIPS 197 has them."""
    box, words, constant = _s_box(), [key[i : i + 4] for i in range(0, 16, 4)], 1
    for i in range(4, 4 * (_ROUNDS + 1)):
        word = words[-1]
        if i % 4 == 0:
            word = bytes([box[word[1]] ^ constant, box[word[2]], box[word[3]], box[word[0]]])
            constant = _doubled(constant)
        words.append(bytes(a ^ b for a, b in zip(words[-4], word, strict=True)))
    return b"".join(words)


@cache
def _s_box() -> bytes:
    """Return AES's permutation of bytes: inverses, by powers of 3 and of its inverse, and an affine map."""
    box, p, q = bytearray([0x63] * 256), 1, 1
    for _ in range(255):
        p ^= _doubled(p)
        for by in (1, 2, 4):
            q ^= q << by & 255
        q ^= 9 * (q >> 7)
        rotated = q ^ q << 1 ^ q << 2 ^ q << 3 ^ q << 4
        box[p] = 0x63 ^ rotated & 255 ^ rotated >> 8
    return bytes(box)


def _doubled(x: int) -> int:
    return x << 1 ^ 0x11B * (x >> 7)
