"""Windows in a message of LoLa's CIFAR network: bytes against rotations of our plan, by steps that are timed.

Weights are random, of 8 bits, circulant with k = 16 in the second convolution; pixels have 4 bits. Processor seconds of
both parties on one thread, extrapolated from steps that stand for others; contestants take turns.

    python benchmarks/windows.py
"""

from functools import partial

import numpy as np

from papers.falcon2020.planning.exact_network import ExactLayer, ExactNetwork
from papers.falcon2020.planning.maps import maps_plan
from papers.falcon2020.planning.parameters import plan_for
from papers.reproduce.leveled import SHAPES, message_megabytes
from papers.reproduce.network_seconds import CLIENT, seconds_by_steps
from privcirnet.cli.console import show_rows
from privcirnet.he.system import threads

_SIDES, _TURNS, _K = (1, 2, 4, 8, 16), 2, 16


def main() -> None:
    """Print a table."""
    random, layers = np.random.default_rng(0), list[ExactLayer]()
    for name, shape, b in zip(("conv1", "conv2", "fc"), SHAPES["lola_cifar"], (1, _K, 1), strict=True):
        rows, bias = random.integers(-127, 128, shape.weight_shape(b)), np.zeros(shape.out_channels, dtype=object)
        layers.append(ExactLayer(name, shape, b, rows, bias))
    network = ExactNetwork(tuple(layers), 0, 15)
    planned = {side: plan_for(network, partial(maps_plan, side=side)) for side in _SIDES}
    with threads.using(1):
        found = [{side: seconds_by_steps(*planned[side]) for side in _SIDES} for _ in range(_TURNS)]
    table: list[dict[str, str]] = []
    for side, (plan, parameters) in planned.items():
        whole = min((turn[side] for turn in found), key=lambda each: sum(each.values()))
        table.append(
            {
                "windows": str(side),
                "messages": str(plan.public.inputs),
                "rotations": str(plan.circuit.counts["rotate"]),
                "up MB": f"{message_megabytes(plan, parameters)[0]:.1f}",
                "client s": f"{whole[CLIENT]:.2f}",
                "image s": f"{sum(whole.values()):.2f}",
            }
        )
    show_rows("windows in a message", table)


if __name__ == "__main__":
    main()
