"""Seconds that a user pays for an image of a plan, in both phases, with AESPA or its own activations."""

import copy
from collections.abc import Mapping

from papers.pareto.config import ParetoConfig
from papers.pareto.prepare import Prepared
from privcirnet.data.dataset import ImageData
from privcirnet.passes.convert import circulant_
from privcirnet.passes.fuse import fuse
from privcirnet.passes.surgery import exact_copy, polynomial_
from privcirnet.runs.check import forecast
from privcirnet.train import stages

PAID = {
    "aespa_s": "AESPA: all",
    "aespa_online_s": "AESPA: with the image",
    "exact_s": "own activations, exact: all",
    "exact_online_s": "own activations, exact: with the image",
}
"""Seconds of client, server and network together."""


def paid(config: ParetoConfig, prepared: Prepared, data: ImageData, sizes: Mapping[str, int]) -> dict[str, float]:
    """Return the predicted seconds of an image, by key of :data:`PAID`.

    Args:
        sizes: block size by layer.
    """
    image = data.real(data.test_images[:1])
    channels, height, width = image.shape[1:]
    network = circulant_(stages.load_network(config.init, data), {name: b for name, b in sizes.items() if b > 1})
    squared, exact = copy.deepcopy(network), exact_copy(network, image)
    polynomial_(squared, image, "aespa")
    of = (
        forecast(fuse(model), (channels, height, width), config.he, prepared.profile, 1) for model in (squared, exact)
    )
    seconds = [second for one in of for second in (one.seconds, one.online)]
    return dict(zip(PAID, seconds, strict=True))
