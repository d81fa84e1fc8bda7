"""Calibration: this machine's operations measured into a cost profile, through the engine that inference uses.

An operation's cost is measured as it occurs in a layer: small circuits that differ in one operation are timed in
turns, on several ciphertexts at once, so that an engine with threads has work for all of them. Repeating one operation
alone would measure it with a warm cache and on one thread. Work in clear is timed as a few whole layers; its costs are
those of the operations that explain their times best (:func:`clear_seconds`).
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.bfv import batching
from privcirnet.he.bfv.engines import engine_of
from privcirnet.he.bfv.interface import ClientEngine, EvaluationKeys, ServerEngine
from privcirnet.he.bfv.layer_circuit import LayerCircuit, Pair
from privcirnet.he.bfv.noise import fitting_plain_bits, largest_plain_bits
from privcirnet.he.bfv.parameters import WIDE_COEFFICIENT_BITS, WIDE_RING_DEGREE, Parameters, choose
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.mpc.local.linear import ClearLinear
from privcirnet.he.planning.cost import clear_work, linear_cost
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.planner import cheapest_layer
from privcirnet.he.planning.profile import COUNTED, ONLINE, OPERATIONS, Profile
from privcirnet.he.protocol.rounds.exchange import PreparedNode
from privcirnet.he.protocol.rounds.linear import LinearExchange
from privcirnet.he.ring import cyclic, sampling
from privcirnet.he.rlwe.parameters import TABLE
from privcirnet.he.system import threads

LAYERS: dict[str, tuple[LinearShape, int]] = {
    "clear, one position": (LinearShape(1, 1, 64, 64), 8),
    "clear, early": (LinearShape(32, 32, 32, 32), 1),
    "clear, early blocks": (LinearShape(32, 32, 32, 32), 8),
    "clear, late": (LinearShape(8, 8, 256, 256), 1),
    "clear, late blocks": (LinearShape(8, 8, 256, 256), 8),
    "clear, windows": (LinearShape(16, 16, 64, 64, 3, 1, 1), 1),
    "clear, windows of blocks": (LinearShape(16, 16, 64, 64, 3, 1, 1), 8),
    "clear, many weights": (LinearShape(2, 2, 512, 512, 3, 1, 1), 1),
    "clear, many blocks": (LinearShape(2, 2, 512, 512, 3, 1, 1), 8),
    "clear, channel by channel": (LinearShape(16, 16, 192, 192, 3, 1, 1, 192), 1),
    "clear, few channels by themselves": (LinearShape(16, 16, 32, 32, 3, 1, 1, 32), 1),
}
"""Layers like those of networks, with their block sizes, that differ in their main operation."""
_LARGEST = 127
"""Largest absolute weight, of 8 bits."""


def clear_calls(t: int) -> dict[str, Callable[[], object]]:
    """Return each timed layer."""
    return {name: _call(shape, b, t) for name, (shape, b) in LAYERS.items()}


def _call(shape: LinearShape, b: int, t: int) -> Callable[[], object]:
    rows = np.random.default_rng(0).integers(-_LARGEST, _LARGEST + 1, shape.weight_shape(b))
    layer, share = ClearLinear(shape, b, rows, t), sampling.uniform(shape.input_shape, t)
    mask = sampling.uniform(shape.output_shape, t)
    return lambda: layer.apply(share, mask)


def clear_seconds(layer_seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of each operation of :data:`ONLINE`: those whose sums are off by the least share of a layer.

    Args:
        layer_seconds: seconds of the layers, by name.
    """
    rows = np.array([clear_work(*layer) for layer in LAYERS.values()]) / [[layer_seconds[name]] for name in LAYERS]
    solution, *_ = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)
    return dict(zip(ONLINE, solution.tolist(), strict=True))


_INPUTS = 8
"""Ciphertexts of each circuit."""
_TURNS, _PRODUCTS = 5, 9
"""Counts of the circuits that have many."""
_LAYER, _BLOCK_SIZE = LinearShape(8, 8, 32, 32, 3, 1, 1), 4
"""Layer whose time measures the work of layers beyond their operations."""
_TRANSFORM_LENGTH = 8
_COEFFICIENT_NOISE = 16
"""Bits of noise of a small layer in coefficient encoding."""


def calibrate(
    ring_degree: int = WIDE_RING_DEGREE,
    coefficient_bits: tuple[int, ...] = WIDE_COEFFICIENT_BITS,
    repetitions: int = 15,
    progress: Callable[[str], None] | None = None,
    engine_name: str = "kernel",
    table: str = TABLE,
) -> Profile:
    """Return a profile with the median seconds of every operation of :data:`OPERATIONS`.

    Args:
        coefficient_bits: primes of q, special prime last.
        repetitions: timed rounds over all operations, after one that is not.
        progress: called with a note after each round.
    """
    used = threads.count() if engine_name == "kernel" else 1
    plain_bits = _plain_bits(ring_degree, tuple(coefficient_bits))
    layer = cheapest_layer(_LAYER, _BLOCK_SIZE, replace(COUNTED, ring_degree=ring_degree), LINKS["local"])
    lengths = {_TRANSFORM_LENGTH} | layer.transform_lengths
    parameters = choose(lengths, plain_bits, ring_degree, coefficient_bits, table)
    calls = _calls(parameters, engine_name, layer)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for repetition in range(repetitions + 1):
        for name, call in calls.items():
            times[name].append(_time(call))
        if progress:
            progress(f"{repetition} of {repetitions}")
    seconds = _seconds({name: statistics.median(samples[1:]) for name, samples in times.items()}, ring_degree)
    about = f"this machine, {engine_name}", ring_degree, tuple(coefficient_bits)
    predicted = linear_cost(layer, Profile(*about, seconds, used), LINKS["local"]).server
    seconds["call"] = max(statistics.median(times["layer"][1:]) - predicted, 0.0)
    return Profile(*about, seconds, used)


def circuits(step: int) -> dict[str, LayerCircuit]:
    """Return circuits on :data:`_INPUTS` ciphertexts, named after what they have more than "one".

    Args:
        step: columns of the first rotation; the others are its multiples.
    """
    steps = [number * step for number in range(1, _TURNS + 1)]
    return {
        "one": _circuit([0], 1),
        "products": _circuit([0], _PRODUCTS),
        "outputs": _circuit([0], 1, sums=2),
        "giant": _circuit([0], 1, sums=2, giant=step),
        "fold": _circuit([0], 1, fold=step),
        "rotated": _circuit(steps[:1], 1),
        "turns": _circuit(steps, _TURNS),
    }


def _circuit(steps: list[int], products: int, sums: int = 1, giant: int = 0, fold: int = 0) -> LayerCircuit:
    """Return each input rotated by every step and multiplied ``products`` times, in each of its ``sums`` inner sums."""
    rotated = tuple((source, step) for source in range(_INPUTS) for step in steps)
    inner: list[tuple[Pair, ...]] = []
    for source in range(_INPUTS):
        for _ in range(sums):
            first = len(inner) * products
            inner.append(tuple((source * len(steps) + k % len(steps), first + k) for k in range(products)))
    if giant:
        outputs = tuple(((2 * source, 0), (2 * source + 1, giant)) for source in range(_INPUTS))
    else:
        outputs = tuple(((number, 0),) for number in range(len(inner)))
    return LayerCircuit(
        rotated, tuple(inner), outputs, ((fold,) if fold else (),) * len(outputs), len(inner) * products
    )


def _seconds(call_seconds: Mapping[str, float], n: int) -> dict[str, float]:
    """Return the seconds of each operation, from those of the calls."""
    circuit_seconds = {name: call_seconds[name] / _INPUTS for name in circuits(1)}
    several = ("encrypt", "receive", "receive and add", "pmult_plain", "reply", "decrypt")
    seconds = {name: call_seconds[name] / _INPUTS for name in several} | {"polynomial": call_seconds["polynomial"]}
    seconds["transform"] = call_seconds["transform"] / (n * _TRANSFORM_LENGTH)
    seconds["add_plain"] = seconds.pop("receive and add") - seconds["receive"]
    seconds["pmult"] = (circuit_seconds["products"] - circuit_seconds["one"]) / (_PRODUCTS - 1)
    seconds["from_ntt"] = circuit_seconds["outputs"] - circuit_seconds["one"] - seconds["pmult"]
    seconds["to_ntt"] = circuit_seconds["one"] - seconds["pmult"] - seconds["from_ntt"]
    seconds["rotate"] = (circuit_seconds["turns"] - circuit_seconds["rotated"]) / (_TURNS - 1) - seconds["pmult"]
    seconds["hoist"] = circuit_seconds["rotated"] - circuit_seconds["one"] + seconds["to_ntt"] - seconds["rotate"]
    seconds["giant"] = circuit_seconds["giant"] - circuit_seconds["outputs"] + seconds["from_ntt"]
    seconds["fold"] = circuit_seconds["fold"] - circuit_seconds["one"]
    seconds |= clear_seconds(call_seconds)
    return {name: max(seconds.get(name, 0.0), 0.0) for name in OPERATIONS}


def _plain_bits(ring_degree: int, coefficient_bits: tuple[int, ...]) -> int:
    """Return the bits of t that these parameters are for: for slots, or where those do not fit, for coefficients."""
    try:
        return largest_plain_bits(ring_degree, coefficient_bits, 1)
    except RuleError:
        return fitting_plain_bits(coefficient_bits, _COEFFICIENT_NOISE)


def _calls(parameters: Parameters, name: str, layer: Layer) -> dict[str, Callable[[], object]]:
    """Return each timed call, on operands like those of inference."""
    n, t, step = parameters.ring_degree, parameters.plain_modulus, parameters.ring_degree // 16
    client, server = engine_of(name).parties(parameters)
    steps = {number * step for number in range(1, _TURNS + 1)} | layer.column_steps
    keys = server.load_keys(client.public_keys(steps), steps)
    slots = sampling.uniform((_INPUTS, n), t)
    messages = client.encrypt_all(slots)
    received = server.receive_all(messages, None)
    replies = server.reply_all(server.receive_all(messages, None), slots, keys)
    maps = sampling.uniform((n // 4, _TRANSFORM_LENGTH, 4), t)
    return _circuit_calls(server, received, keys, step, slots) | {
        "encrypt": lambda: client.encrypt_all(slots),
        "receive": lambda: server.receive_all(messages, None),
        "receive and add": lambda: server.receive_all(messages, slots),
        "pmult_plain": lambda: server.multiply_all(received, slots),
        "reply": lambda: server.reply_all(received, sampling.uniform((_INPUTS, n), t), keys),
        "decrypt": lambda: client.decrypt_all(replies),
        "polynomial": lambda: batching.coefficients_to_slots(slots[:1], t),
        "transform": lambda: cyclic.cyclic(maps, 1, t),
        "layer": _layer_call(layer, client, server, keys, t),
        **clear_calls(t),
    }


def _layer_call(
    layer: Layer, client: ClientEngine, server: ServerEngine, keys: EvaluationKeys, t: int
) -> Callable[[], object]:
    """Return the server's part of one layer."""
    rows = sampling.uniform(layer.shape.weight_shape(layer.block_size), 255).astype(np.int64) - 127
    encoded = layer.encode_spectrum(layer.spectrum(rows, t), server)
    exchange, prepared = LinearExchange(layer), PreparedNode(encoded)
    ours, theirs = (sampling.uniform(layer.shape.input_shape, t) for _ in range(2))
    messages = exchange.request([ours], client)
    return lambda: exchange.reply(prepared, [theirs], messages, server, keys)


def _circuit_calls(
    server: ServerEngine, inputs: Any, keys: EvaluationKeys, step: int, slots: np.ndarray
) -> dict[str, Callable[[], object]]:
    calls: dict[str, Callable[[], object]] = {}
    for name, circuit in circuits(step).items():
        weights = server.encode_weights(circuit, [slots[k % _INPUTS] for k in range(circuit.weights)])
        calls[name] = lambda circuit=circuit, weights=weights: server.evaluate(circuit, weights, inputs, keys)
    return calls


def _time(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
