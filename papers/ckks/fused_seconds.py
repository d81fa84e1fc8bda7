"""A convolution fused with bootstrapping or in a row with it, in CKKS at n = 65536: ``python -m papers.ckks``."""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.bench.bootstrapping import Party
from papers.ckks import convolution
from papers.ckks.fused import FusedConvolution
from privcirnet.he.ckks.bootstrapping import Bootstrapping, parameters_for

WIDTH, KERNEL = 32, 3
"""Of a slice, for maps of 16 x 16 to 31 x 31, and of the convolution."""


def run_fused(repetitions: int, progress: Callable[[], object]) -> dict[str, Any]:
    """Convolve as many channels as a ciphertext has and refresh, both ways.

    Args:
        repetitions: timed runs of each way.
        progress: called after the keys of each way, and after each run.

    Returns:
        "seconds_fused" and "seconds_in_a_row", also with "processor_" before them; "precision_bits_fused".
    """
    refresh = Bootstrapping(parameters_for())
    party, layer = Party(refresh, progress), convolved(refresh)
    party.prepare(layer, layer.levels_fused)
    party.prepare(layer.in_a_row, layer.levels_in_a_row)
    fused = party.timed(layer, layer.levels_fused, repetitions)
    in_a_row = party.timed(layer.in_a_row, layer.levels_in_a_row, repetitions)
    return {
        "seconds_fused": fused["seconds"],
        "seconds_in_a_row": in_a_row["seconds"],
        "processor_seconds_fused": fused["processor_seconds"],
        "processor_seconds_in_a_row": in_a_row["processor_seconds"],
        "precision_bits_fused": fused["precision_bits"],
    }


def fused_runs(repetitions: int) -> int:
    """Return how often :func:`run_fused` calls its progress."""
    return 2 + 2 * (repetitions + 1)


def convolved(refresh: Bootstrapping) -> FusedConvolution:
    """Return a convolution of all channels that fill a ciphertext, with random weights, before a bootstrapping."""
    length = WIDTH * WIDTH // 2
    channels = refresh.parameters.slots // length
    weights = np.random.default_rng(0).uniform(-1, 1, (channels, channels, KERNEL, KERNEL)) / (channels * KERNEL**2)
    ((linear,),) = convolution.convolution(weights, channels, WIDTH)
    return FusedConvolution(refresh, linear, length)


def fused_facts(found: dict[str, Any]) -> dict[str, str]:
    """Return a run in words.

    Args:
        found: from :func:`run_fused`.
    """
    ratio = found["processor_seconds_in_a_row"] / found["processor_seconds_fused"]
    return {
        "convolution fused": f"{found['seconds_fused']:.2f} s",
        "in a row": f"{found['seconds_in_a_row']:.2f} s; {ratio:.2f} times the processor seconds",
    }
