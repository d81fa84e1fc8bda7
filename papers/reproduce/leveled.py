"""Leveled networks of LoLa and Falcon (2020): operations, parameters and bytes of plans, and seconds of an image.

Weights are random and of 8 bits, pixels of 4, so that a count does not depend on training.
"""

from functools import cache

import numpy as np

from papers.falcon2020.planning import plans
from papers.falcon2020.planning.exact_network import ExactLayer, ExactNetwork
from papers.falcon2020.planning.parameters import LeveledParameters, plan_for
from papers.falcon2020.planning.plan import Plan
from papers.layouts.falcon import falcon_plan
from papers.layouts.falcon_maps import falcon_maps_plan
from papers.layouts.lola_maps import lola_maps_plan
from papers.reproduce.network_seconds import LeveledBenchmark, seconds_by_steps
from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import ciphertext_bytes, message_bytes
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.system import threads

_MB, _LARGEST, _PIXELS, _RUNS = 1e6, 127, 15, 2

PLANS = {**plans.PLANS, "falcon": falcon_plan, "falcon_maps": falcon_maps_plan, "lola_maps": lola_maps_plan}
"""Those of the package, and published ones."""
SHAPES = {
    "lola_mnist": (LinearShape(28, 28, 1, 5, 5, 2, 1), LinearShape.gemm(1, 845, 100), LinearShape.gemm(1, 100, 10)),
    "lola_cifar": (
        LinearShape(32, 32, 3, 83, 8, 2, 1),
        LinearShape(14, 14, 83, 163, 6, 2),
        LinearShape.gemm(1, 4075, 10),
    ),
}
"""Layers by network; the CIFAR network is the one that the papers print (:mod:`privcirnet.models.small`)."""


def leveled_counts(network: str, plan: str, b: int = 1, layer: str = "") -> dict[str, float]:
    """Return the operations of a plan for one plain modulus, and its parameters and messages.

    Args:
        network: of :data:`SHAPES`.
        plan: of :data:`PLANS`.
        b: block size of the second layer.
        layer: count this part alone: conv, square, middle, square 2, or last; "" for all.
    """
    made, parameters = _planned(network, plan, b)
    circuit = made.circuit
    counts = circuit.counts_of(list(dict.fromkeys(circuit.layers))[_PARTS.index(layer)]) if layer else circuit.counts
    named = {"HE-Rot": "rotate", "HE-Pmult": "pmult", "HE-Mult": "square", "HE-Add": "add"}
    found: dict[str, float] = {title: counts[name] for title, name in named.items()}
    found["HE-Add"] += counts["add_plain"]
    log_q = max(sum(parameters.data_bits), sum(parameters.coefficient_bits) + sum(parameters.special_bits))
    return {
        **found,
        "HE operations": sum(found.values()),
        "log q": log_q,
        "traffic": sum(message_megabytes(made, parameters)),
    }


def message_megabytes(plan: Plan, parameters: LeveledParameters) -> tuple[float, float]:
    """Return the MB of a request and of an answer."""
    numbers, public, special = range(len(parameters.moduli)), plan.public, parameters.coefficient_bits[-1]
    up, _ = ciphertext_bytes(parameters.ring_degree, (*parameters.data_bits, special), 1)
    down = sum(message_bytes(parameters.at(number, public.primes))[1] for number in numbers)
    return up * public.inputs / _MB, down * public.outputs / _MB


def leveled_latency(network: str, plan: str, b: int = 1) -> dict[str, float]:
    """Return the seconds of an image on one thread, client and server in one process, and its bytes in MB.

    Processor seconds; the first image, which also loads compiled kernels, does not count.

    Args:
        network: of :data:`SHAPES`.
        plan: of :data:`PLANS`.
        b: block size of the second layer.

    Raises:
        RuleError: a result is wrong.
    """
    with threads.using(1):
        made = LeveledBenchmark(*_planned(network, plan, b))
        for seed in range(_RUNS):
            made.run(np.random.default_rng(seed).integers(0, _PIXELS + 1, made.plan.network.input_shape))
        made.close()
    if made.equal < made.images:
        raise RuleError("an encrypted result must be exact", got=plan, remedy="report it, with this line")
    return {"latency": min(each.image_work for each in made.seconds), "traffic": sum(made.message_bytes) / _MB}


def leveled_steps(network: str, plan: str, b: int = 1) -> dict[str, float]:
    """Return the seconds of an image on one thread, extrapolated from steps that stand for many others; and its parts.

    Args:
        network: of :data:`SHAPES`.
        plan: of :data:`PLANS`, one of many alike steps.
        b: block size of the second layer.
    """
    with threads.using(1):
        found = seconds_by_steps(*_planned(network, plan, b))
    return {"latency": sum(found.values()), **found}


_PARTS = ("conv", "square", "middle", "square 2", "last")
"""Parts of three layers, in the order of a circuit."""


@cache
def _planned(network: str, plan: str, b: int) -> tuple[Plan, LeveledParameters]:
    return plan_for(_network(network, b), PLANS[plan])


@cache
def _network(network: str, b: int) -> ExactNetwork:
    random, layers = np.random.default_rng(0), list[ExactLayer]()
    for number, shape in enumerate(SHAPES[network]):
        own = b if number == 1 else 1
        rows = random.integers(-_LARGEST, _LARGEST + 1, shape.weight_shape(own))
        bias = random.integers(-_LARGEST, _LARGEST + 1, shape.out_channels).astype(object)
        layers.append(ExactLayer(f"layer{number}", shape, own, rows, bias))
    return ExactNetwork(tuple(layers), 0, _PIXELS)
