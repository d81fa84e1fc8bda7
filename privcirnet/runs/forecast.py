"""What an encrypted image will take, predicted from a network's shapes before its values are known.

Plans depend on shapes, parameters on the values too. Those of an untrained network say nothing of the trained one, so
all values are what 8 bits usually hold. ``compile`` chooses the real parameters, from images.
"""

from dataclasses import dataclass, replace

import numpy as np
from torch import fx

from privcirnet.config import HEConfig
from privcirnet.he.planning.fit import draft, fit_draft, predicted_seconds
from privcirnet.he.planning.profile import LINKS, Link, Profile
from privcirnet.he.planning.target import scaled
from privcirnet.he.program.bounds import ObservedRange, real_name
from privcirnet.he.program.operations import Input
from privcirnet.he.protocol.framing.message_sizes import rounds
from privcirnet.nn.nonpolynomial import is_polynomial
from privcirnet.nn.quantizers import ActivationQuantizer, WeightQuantizer
from privcirnet.passes.lower import integer_network
from privcirnet.passes.quantize import quantize
from privcirnet.runs.export import target_of, with_transfers
from privcirnet.runs.memory import needed_bytes, weight_bytes

_LOG_STEP, _PIXELS = -7, Input(-128, 127)
"""Of all activations and weights: 8 bits of values up to 1."""
_MEAN = 0.1
"""Mean size of values whose largest is 1."""
_LINKS = LINKS["local"], Link(bandwidth=1.0, round_trip=0.0)
"""Of the latter each byte takes one second."""


@dataclass(frozen=True)
class Forecast:
    """What one encrypted image will take, predicted.

    Attributes:
        block_size: largest of any layer; 1 for dense weights.
        sent: bytes, both ways.
        rounds: messages each way.
        weights: bytes of encoded weights.
        memory: bytes of server and client in one process that keeps all of them.
        log_q: bits of the coefficient modulus.
    """

    block_size: int
    seconds: float
    sent: float
    rounds: int
    weights: int
    memory: int
    ring_degree: int
    log_q: int


def forecast(
    fused: fx.GraphModule, image: tuple[int, int, int], he: HEConfig, profile: Profile, block_size: int
) -> Forecast:
    """Return what an image will take.

    Args:
        he: settings of the encryption; bounds are those of usual values, whatever they say.

    Raises:
        DoesNotFit: no parameters carry the program.
        RuleError: a layer has no encrypted form.
    """
    quantized, he = quantize(fused), he.settled(exact=not is_polynomial(fused))
    for module in quantized.modules():
        if isinstance(module, ActivationQuantizer | WeightQuantizer):
            module.log_step.fill_(_LOG_STEP)
    network = integer_network(quantized, _PIXELS, image, _LOG_STEP, he.nonlinear)
    seen = dict[str, ObservedRange]()
    for node in network.nodes:
        ends = (np.full(node.shape, value) for value in (-1.0, 1.0, _MEAN))
        seen.setdefault(real_name(node), ObservedRange(*ends))
    target = replace(target_of(he, profile), seen=seen, margin_bits=he.margin_bits)
    fitted = fit_draft(draft(network, target), target)
    program, of = with_transfers(fitted.program, he.ot), fitted.program.parameters
    there = replace(scaled(profile, fitted.choice.set), plain_bits=of.plain_bits)
    seconds, local, link = (predicted_seconds(program.nodes, there, to) for to in (LINKS[he.link], *_LINKS))
    taken = seconds, link - local, rounds(program), weight_bytes(program), needed_bytes(program)
    return Forecast(block_size, *taken, of.ring_degree, of.log_q)
