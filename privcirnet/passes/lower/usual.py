"""A network of usual values as an integer network, before its own are known.

Prices depend on shapes alone, and on bounds a little. Those of an untrained network say nothing of the trained one, so
all values are what 8 bits usually hold.
"""

from dataclasses import replace

import numpy as np
from torch import fx

from privcirnet.he.planning.plan_program import Draft, Target, draft
from privcirnet.he.program.bounds import ObservedRange, real_name
from privcirnet.he.program.operation import Shape
from privcirnet.he.program.operations import Input
from privcirnet.nn.quantizers import ActivationQuantizer, WeightQuantizer
from privcirnet.passes.lower import integer_network
from privcirnet.passes.quantize import with_quantizers

_LOG_STEP, _PIXELS = -7, Input(-128, 127)
"""Step of all activations and weights, and range of pixels: 8 bits of values up to 1."""
_MEAN = 0.1
"""Mean size of values whose largest is 1."""


def usual_draft(fused: fx.GraphModule, image: Shape, target: Target) -> Draft:
    """Return a fused network as an integer network with the bounds of usual values.

    Args:
        image: (C, H, W).
        target: its own bounds do not matter.

    Raises:
        RuleError: a layer has no encrypted form.
    """
    quantized = with_quantizers(fused)
    for module in quantized.modules():
        if isinstance(module, ActivationQuantizer | WeightQuantizer):
            module.log_step.fill_(_LOG_STEP)
    network = integer_network(quantized, _PIXELS, image, _LOG_STEP, target.nonlinear)
    observed = dict[str, ObservedRange]()
    for node in network.nodes:
        ends = (np.full(node.shape, value) for value in (-1.0, 1.0, _MEAN))
        observed.setdefault(real_name(node), ObservedRange(*ends))
    return draft(network, replace(target, seen=observed))
