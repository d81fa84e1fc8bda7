"""A leveled program's public description as plain data, and back: what the server's greeting holds.

It has the plan's messages and the parameters, never a weight, and of bounds only how many bits the results have.
Whatever is read is checked: it comes from a server that the client does not know. Lists of slots are zlib's, in base64,
of little-endian words of 32 bits, and as long as the ring degree says.
"""

import base64
import binascii
import reprlib
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.leveled.parameters import LeveledParameters
from privcirnet.he.leveled.plan import PublicPlan
from privcirnet.he.leveled.program import Description
from privcirnet.he.params.parameters import Parameters

FORMAT, VERSION = "privcirnet-leveled", 1
MAX_MODULI, MAX_CIPHERTEXTS, MAX_RESULTS = 8, 1 << 12, 1 << 16
"""Most plain moduli, ciphertexts of a message, and results, that are accepted."""
MAX_BYTES = 1 << 30
"""Longest keys or message that is accepted."""
MAX_VALUES = 1 << 22
"""Most pixels of an image, and values of its windows, that are accepted."""
_MAX_STEP, _MAX_PIXEL, _MAX_BITS = 1024, 1 << 32, 480
_SIZES = ("height", "width", "in_channels", "out_channels", "kernel", "stride", "padding")
_REMEDY = "use the same version on both sides, or another server"


def to_dict(known: Description) -> dict[str, Any]:
    """Return a description as plain data for JSON.

    Args:
        known: of a program.
    """
    plan, shape = known.plan, asdict(known.plan.first)
    return {
        "format": FORMAT,
        "version": VERSION,
        "parameters": {
            "ring_degree": known.parameters.ring_degree,
            "coefficient_bits": list(known.parameters.coefficient_bits),
            "plain_moduli": [each.plain_modulus for each in known.parameters.moduli],
        },
        "image": list(plan.image),
        "first": {name: shape[name] for name in _SIZES},
        **{name: getattr(plan, name) for name in ("low", "high", "bits", "inputs", "outputs", "batch")},
        "log_step": known.log_step,
        "shift": known.shift,
        "rotations": sorted(plan.rotations),
        "columns": _packed(plan.columns),
        "lanes": "" if plan.lanes is None else _packed(plan.lanes),
        "results": [list(place) for place in plan.results],
    }


def from_dict(data: Any) -> Description:
    """Return a description.

    Args:
        data: plain data, from anybody.

    Raises:
        RuleError: it is no such description, is not 128-bit secure, or asks for too much.
    """
    try:
        if data["format"] != FORMAT or data["version"] != VERSION:
            got = reprlib.repr((data["format"], data["version"]))
            raise _refused(f"must have format {FORMAT} and version {VERSION}", got)
        parameters = parameters_from(data["parameters"])
        plan = _plan(data, parameters.ring_degree)
        log_step = _integer(data["log_step"], -_MAX_STEP, _MAX_STEP)
        found = Description(plan, parameters, log_step, _integer(data["shift"], 0, 32))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise _refused("must be complete", reprlib.repr(error)) from None
    if plan.bits > parameters.plain_bits:
        raise _refused("must have results that its plain moduli carry", f"{plan.bits} for {parameters.plain_bits} bits")
    if (most := max(found.sizes.keys, found.sizes.request, found.sizes.reply)) > MAX_BYTES:
        raise _refused(f"must have messages of at most {MAX_BYTES} bytes", f"{most} bytes")
    return found


def parameters_from(data: Any) -> LeveledParameters:
    """Return the parameters of a description.

    Args:
        data: plain data, from anybody.

    Raises:
        RuleError: they are none, or not 128-bit secure.
        KeyError: one is missing.
        TypeError: they are something else.
    """
    degree = _integer(data["ring_degree"], 1, 1 << 20)
    bits = tuple(_integers(data["coefficient_bits"], 32, 1, 64))
    moduli = _integers(data["plain_moduli"], MAX_MODULI, 2, 1 << 60)
    if not moduli or len(set(moduli)) < len(moduli):
        raise _refused("must have plain moduli that differ", reprlib.repr(moduli))
    return LeveledParameters(tuple(Parameters(degree, bits, t) for t in moduli))


def _plan(data: Any, n: int) -> PublicPlan:
    image = tuple(_integers(data["image"], 3, 1, MAX_VALUES))
    if len(image) != 3:
        raise _refused("must have the three sizes of an image", reprlib.repr(image))
    first = LinearShape(**{name: _integer(data["first"][name], 0, MAX_VALUES) for name in _SIZES})
    pixels, places = first.in_channels * first.height * first.width, first.rows.outputs * first.columns.outputs
    inputs = _integer(data["inputs"], 1, MAX_CIPHERTEXTS)
    outputs = _integer(data["outputs"], 1, MAX_CIPHERTEXTS)
    batch = _integer(data["batch"], 1, n)
    if pixels != image[0] * image[1] * image[2] or max(pixels, inputs * places) * batch > MAX_VALUES:
        raise _refused(f"must have at most {MAX_VALUES} values, all of the image", f"{image} in {pixels} values")
    if first.in_channels * first.kernel**2 != inputs:
        raise _refused("must have a message for each weight of a kernel", f"{inputs} messages")
    low, high = (_integer(data[name], -_MAX_PIXEL, _MAX_PIXEL) for name in ("low", "high"))
    bits = _integer(data["bits"], 1, _MAX_BITS)
    rotations = frozenset(_integers(data["rotations"], 1 << 12, 0, n // 2 - 1))
    columns = _unpacked(data["columns"], n, -1, places)
    lanes = _unpacked(data["lanes"], n, 0, batch) if data["lanes"] else None
    results = _results(data["results"], outputs, n)
    if low > high or (lanes is None) != (batch == 1):
        raise _refused("must have a range of pixels, and lanes for a batch alone", f"[{low}, {high}], batch {batch}")
    if len(results) % batch:
        raise _refused("must have as many results for each image", f"{len(results)} for {batch}")
    return PublicPlan(
        (image[0], image[1], image[2]),
        *(first, low, high, bits, n, inputs, outputs, rotations, columns, results, batch, lanes),
    )


def _results(value: Any, outputs: int, n: int) -> tuple[tuple[int, int], ...]:
    places = [_integers(place, 2, 0, max(outputs, n) - 1) for place in _few(value, MAX_RESULTS)]
    found = tuple((place[0], place[1]) for place in places)
    if not found or len(set(found)) < len(found) or any(o >= outputs or slot >= n for o, slot in found):
        raise _refused("must have each result at a place of its own", f"{len(found)} results")
    return found


def _packed(slots: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(slots.astype("<i4").tobytes())).decode()


def _unpacked(value: Any, count: int, least: int, end: int) -> np.ndarray:
    """As many integers in [least, end) as there are slots; no more is unpacked than that."""
    try:
        inflate = zlib.decompressobj()
        content = inflate.decompress(base64.b64decode(cast(str, value), validate=True), 4 * count + 1)
    except (ValueError, binascii.Error, zlib.error):
        raise _refused("must have its slots in zlib's form and base64", reprlib.repr(value)) from None
    whole = inflate.eof and not inflate.unused_data and len(content) == 4 * count
    found = np.frombuffer(content, "<i4").astype(np.int64) if whole else np.zeros(0, dtype=np.int64)
    if not whole or found.min() < least or found.max() >= end:
        raise _refused(f"must have {count} slots with numbers from {least} to {end - 1}", f"{len(content)} bytes")
    return found


def _few(value: Any, most: int) -> Sequence[Any]:
    if not isinstance(value, list) or len(cast(list[Any], value)) > most:
        raise _refused(f"must have a list of at most {most} here", reprlib.repr(cast(object, value)))
    return cast(list[Any], value)


def _integers(value: Any, most: int, least: int, largest: int) -> list[int]:
    return [_integer(item, least, largest) for item in _few(value, most)]


def _integer(value: Any, least: int, largest: int) -> int:
    if type(value) is not int or not least <= value <= largest:
        raise _refused(f"must have an integer in [{least}, {largest}] here", reprlib.repr(value))
    return value


def _refused(rule: str, got: str) -> RuleError:
    return RuleError(f"a leveled program's description {rule}", got=got, remedy=_REMEDY)
