"""A leveled program's public description as plain data, and back: what the server's greeting holds.

It has the plan's messages and the parameters, never a weight, and of bounds only how many bits the results have.
Whatever is read is checked: it comes from a server that the client does not know. Lists of slots are zlib's, in base64,
of little-endian words of 32 bits, and as long as the ring degree says.
"""

import base64
import binascii
import reprlib
import zlib
from dataclasses import asdict
from typing import Any, cast

import numpy as np

from papers.falcon2020.circuits.plain_moduli import LeveledParameters
from papers.falcon2020.planning.plan import PublicPlan
from papers.falcon2020.protocol.leveled_program import Description
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.protocol.one_message.reading import MAX_CIPHERTEXTS, Reader
from privcirnet.he.rlwe.parameters import RELINEARIZATION

FORMAT, VERSION = "privcirnet-leveled", 2
MAX_MODULI, MAX_RESULTS = 8, 1 << 16
"""Most plain moduli, and results, that are accepted."""
MAX_BYTES = 1 << 30
"""Longest keys or message that is accepted."""
MAX_VALUES = 1 << 23
"""Most pixels of an image, and values of its windows, that are accepted."""
_MAX_STEP, _MAX_PIXEL, _MAX_BITS = 1024, 1 << 32, 480
_SIZES = ("height", "width", "in_channels", "out_channels", "kernel", "stride", "padding")
_read = Reader("a leveled program's description")


def to_dict(known: Description) -> dict[str, Any]:
    """Return a description as plain data for JSON."""
    plan, shape = known.plan, asdict(known.plan.first)
    return {
        "format": FORMAT,
        "version": VERSION,
        "parameters": {
            "ring_degree": known.parameters.ring_degree,
            "coefficient_bits": list(known.parameters.coefficient_bits),
            "plain_moduli": [each.plain_modulus for each in known.parameters.moduli],
            "special_bits": list(known.parameters.special_bits),
            "digit_primes": known.parameters.digit_primes,
            "request_bits": list(known.parameters.request_bits),
        },
        "image": list(plan.image),
        "first": {name: shape[name] for name in _SIZES},
        **{name: getattr(plan, name) for name in ("low", "high", "bits", "inputs", "outputs", "primes")},
        "log_step": known.log_step,
        "shift": known.shift,
        "keys": [list(key) for key in plan.keys],
        "columns": _packed(plan.columns),
        "kernels": "" if plan.kernels is None else _packed(plan.kernels),
        "lanes": "" if plan.lanes is None else _packed(plan.lanes),
        "summed": list(plan.summed),
        "results": [list(place) for place in plan.results],
    }


def from_dict(data: Any) -> Description:
    """Return a description."""
    with _read.whole(data, FORMAT, VERSION):
        parameters = parameters_from(data["parameters"])
        plan = _plan(data, parameters)
        log_step = _read.integer(data["log_step"], -_MAX_STEP, _MAX_STEP)
        found = Description(plan, parameters, log_step, _read.integer(data["shift"], 0, 32))
    if plan.bits > parameters.plain_bits:
        raise _read.refused(
            "must have results that its plain moduli carry", f"{plan.bits} for {parameters.plain_bits} bits"
        )
    if (most := max(found.sizes.keys, found.sizes.request, found.sizes.reply)) > MAX_BYTES:
        raise _read.refused(f"must have messages of at most {MAX_BYTES} bytes", f"{most} bytes")
    return found


def parameters_from(data: Any) -> LeveledParameters:
    """Return the parameters of a description.

    Raises:
        RuleError: they are none, or not 128-bit secure.
        KeyError: one is missing.
        TypeError: they are something else.
    """
    degree = _read.integer(data["ring_degree"], 1, 1 << 20)
    bits = tuple(_read.integers(data["coefficient_bits"], 32, 1, 64))
    moduli = _read.integers(data["plain_moduli"], MAX_MODULI, 2, 1 << 60)
    if not moduli or len(set(moduli)) < len(moduli):
        raise _read.refused("must have plain moduli that differ", reprlib.repr(moduli))
    special, request = (tuple(_read.integers(data[name], 8, 1, 64)) for name in ("special_bits", "request_bits"))
    digit = _read.integer(data["digit_primes"], 1, 8)
    if digit != 1 + len(special):
        raise _read.refused("must have as many special primes as a digit has primes", f"{1 + len(special)} for {digit}")
    return LeveledParameters(tuple(Parameters(degree, bits, t) for t in moduli), special, digit, request)


def _plan(data: Any, parameters: LeveledParameters) -> PublicPlan:
    n, top = parameters.ring_degree, len(parameters.data_bits)
    image = tuple(_read.integers(data["image"], 3, 1, MAX_VALUES))
    if len(image) != 3:
        raise _read.refused("must have the three sizes of an image", reprlib.repr(image))
    sizes: dict[str, Any] = {name: _read.integer(data["first"][name], 0, MAX_VALUES) for name in _SIZES}
    first = LinearShape(**sizes)
    pixels, places = first.in_channels * first.height * first.width, first.rows.outputs * first.columns.outputs
    inputs = _read.integer(data["inputs"], 1, MAX_CIPHERTEXTS)
    outputs = _read.integer(data["outputs"], 1, MAX_CIPHERTEXTS)
    kernel = first.in_channels * first.kernel**2
    if pixels != image[0] * image[1] * image[2] or max(pixels, kernel * places, inputs * n) > MAX_VALUES:
        raise _read.refused(f"must have at most {MAX_VALUES} values, all of the image", f"{image} in {pixels} values")
    kernels = _unpacked(data["kernels"], inputs * n, -1, kernel).reshape(inputs, n) if data["kernels"] else None
    if kernels is None and kernel != inputs:
        raise _read.refused("must have a message for each weight of a kernel", f"{inputs} messages")
    low, high = (_read.integer(data[name], -_MAX_PIXEL, _MAX_PIXEL) for name in ("low", "high"))
    bits = _read.integer(data["bits"], 1, _MAX_BITS)
    columns = _unpacked(data["columns"], n, -1, places)
    lanes = _unpacked(data["lanes"], n, 0, n) if data["lanes"] else None
    summed = tuple(_read.integers(data["summed"], n, 0, n - 1))
    results = _results(data["results"], outputs, n - max(summed, default=n))
    primes, keys = _read.integer(data["primes"], 1, top), _keys(data["keys"], n, top)
    found = PublicPlan(
        (image[0], image[1], image[2]),
        *(first, low, high, bits, n, inputs, outputs, columns, results, kernels, summed, keys, primes, lanes),
    )
    if low > high or len(results) % found.batch or pixels * found.batch > MAX_VALUES:
        got = f"[{low}, {high}], {len(results)} results for {found.batch}"
        raise _read.refused("must have a range of pixels, and as many results for each image of a batch", got)
    return found


def _keys(value: Any, n: int, top: int) -> tuple[tuple[int, int], ...]:
    """Names of keys, each with the data primes that it is for."""
    pairs = [_read.integers(pair, 2, 0, 2 * n - 1) for pair in _read.few(value, MAX_CIPHERTEXTS)]
    found = {pair[0]: pair[1] for pair in pairs}
    if len(found) < len(pairs) or any(name != RELINEARIZATION and not name % 2 for name in found):
        raise _read.refused("must have keys of Galois elements, each once", reprlib.repr(pairs))
    if any(not 1 <= primes <= top for primes in found.values()):
        raise _read.refused(f"must have keys of 1 to {top} primes", reprlib.repr(pairs))
    return tuple(found.items())


def _results(value: Any, outputs: int, n: int) -> tuple[tuple[int, int], ...]:
    places = [_read.integers(place, 2, 0, max(outputs, n) - 1) for place in _read.few(value, MAX_RESULTS)]
    found = tuple((place[0], place[1]) for place in places)
    if not found or len(set(found)) < len(found) or any(o >= outputs or slot >= n for o, slot in found):
        raise _read.refused("must have each result at a place of its own", f"{len(found)} results")
    return found


def _packed(slots: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(slots.astype("<i4").tobytes())).decode()


def _unpacked(value: Any, count: int, least: int, end: int) -> np.ndarray:
    """As many integers in [least, end) as there are slots; no more is unpacked than that."""
    try:
        inflate = zlib.decompressobj()
        content = inflate.decompress(base64.b64decode(cast(str, value), validate=True), 4 * count + 1)
    except (ValueError, binascii.Error, zlib.error):
        raise _read.refused("must have its slots in zlib's form and base64", reprlib.repr(value)) from None
    whole = inflate.eof and not inflate.unused_data and len(content) == 4 * count
    found = np.frombuffer(content, "<i4").astype(np.int64) if whole else np.zeros(0, dtype=np.int64)
    if not whole or found.min() < least or found.max() >= end:
        raise _read.refused(f"must have {count} slots with numbers from {least} to {end - 1}", f"{len(content)} bytes")
    return found
