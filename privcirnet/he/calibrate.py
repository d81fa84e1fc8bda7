"""Measure this machine's operations into a cost profile, through the same engine that inference uses.

The operations take turns, as they do in a layer: repeating one alone would measure it with a warm cache.
"""

import statistics
import time
from collections.abc import Callable

from privcirnet.errors import RuleError
from privcirnet.he import engine, ntt, params
from privcirnet.he.cost import OPERATIONS, Profile
from privcirnet.he.protocol import shares

_TRANSFORM_LENGTH = 8
_COEFFICIENT_NOISE = 16
"""Bits of noise of a small layer in coefficient encoding."""


def calibrate(
    ring_degree: int = params.WIDE_RING_DEGREE,
    coefficient_bits: tuple[int, ...] = params.WIDE_COEFFICIENT_BITS,
    repetitions: int = 15,
    progress: Callable[[str], None] | None = None,
) -> Profile:
    """Median seconds of every operation of :data:`cost.OPERATIONS`.

    Args:
        ring_degree: n.
        coefficient_bits: primes of q, special prime last.
        repetitions: timed rounds over all operations, after one that is not.
        progress: called with a note after each round.
    """
    plain_bits, noise = _plain_bits(ring_degree, tuple(coefficient_bits))
    parameters = params.choose({_TRANSFORM_LENGTH}, plain_bits, ring_degree, coefficient_bits)
    operations = _operations(parameters, noise)
    times: dict[str, list[float]] = {name: [] for name in operations}
    for repetition in range(repetitions + 1):
        for name, operation in operations.items():
            times[name].append(_time(operation))
        if progress:
            progress(f"{repetition} of {repetitions}")
    seconds = {name: statistics.median(found[1:]) for name, found in times.items()}
    seconds["transform"] /= ring_degree * _TRANSFORM_LENGTH
    return Profile("this machine", ring_degree, tuple(coefficient_bits), {name: seconds[name] for name in OPERATIONS})


def _plain_bits(ring_degree: int, coefficient_bits: tuple[int, ...]) -> tuple[int, int]:
    """(bits of t, bits of noise) that these parameters are for: slots, or where those do not fit, coefficients."""
    try:
        plain_bits = params.largest_plain_bits(ring_degree, coefficient_bits, 1)
    except RuleError:
        return params.fitting_plain_bits(coefficient_bits, _COEFFICIENT_NOISE), _COEFFICIENT_NOISE
    return plain_bits, params.noise_bits(ring_degree, plain_bits, 1)


def _operations(parameters: params.Parameters, noise: int) -> dict[str, Callable[[], object]]:
    """Each operation as a call without arguments, on operands like those of inference."""
    n, t = parameters.ring_degree, parameters.plain_modulus
    client, server = engine.client_engine("tenseal", parameters), engine.server_engine("tenseal", parameters)
    step = n // 16
    keys = server.load_keys(client.public_keys([step]), [step])
    slots = shares.uniform((n,), t)
    message = client.encrypt(slots)
    ciphertext = server.receive(message)
    factor, in_ntt = server.encode_factor(slots), server.to_ntt(ciphertext)
    product = server.multiply(in_ntt, factor)
    reply = server.reply(server.from_ntt(product), keys, noise)
    maps = shares.uniform((n // 4, _TRANSFORM_LENGTH, 4), t)
    return {
        "encrypt": lambda: client.encrypt(slots),
        "receive": lambda: server.receive(message),
        "add_plain": lambda: server.add_plain(ciphertext, server.encode(slots)),
        "rotate": lambda: server.rotate(ciphertext, step, keys),
        "to_ntt": lambda: server.to_ntt(ciphertext),
        "from_ntt": lambda: server.from_ntt(product),
        "pmult": lambda: server.multiply(in_ntt, factor),
        "add": lambda: server.add(product, product),
        "pmult_plain": lambda: server.multiply(ciphertext, server.encode(slots)),
        "reply": lambda: server.reply_all([ciphertext], shares.uniform((1, n), t), keys, noise),
        "decrypt": lambda: client.decrypt(reply),
        "polynomial": lambda: ntt.coefficients_to_slots(slots[None], t),
        "transform": lambda: ntt.cyclic(maps, 1, t),
    }


def _time(operation: Callable[[], object]) -> float:
    start = time.perf_counter()
    operation()
    return time.perf_counter() - start
