"""Networks that were trained for a few steps, at every width: their integer programs are they, bit for bit."""

import copy

import numpy as np
import pytest
import torch

from privcirnet.nn.quantization_steps import learn_steps_
from privcirnet.passes.quantize import quantize
from tests.ladder.case import LOG_STEP, Case, assert_bitwise, real
from tests.ladder.digits import DIGITS
from tests.ladder.mobilenetv2 import COMPOSED
from tests.ladder.training import train_a_little_
from tests.ladder.vit import VITS

WIDTHS = [
    *((DIGITS, {"weight_bits": bits, "activation_bits": max(bits, 4)}) for bits in (1, 4, 5, 6, 7, 8)),
    *((VITS[1], {"stream_bits": bits}) for bits in (8, 10, 14)),
    (COMPOSED, {}),
]


TRAINED = [
    pytest.param(*each, learned, marks=[] if (place + learned) % 2 else pytest.mark.slow)
    for place, each in enumerate(WIDTHS)
    for learned in (False, True)
]
"""Steps that are learned, and that are not, in turns; the others of each pair are slow."""


@pytest.mark.parametrize(
    ("case", "widths", "learned"), TRAINED, ids=lambda value: value.name if isinstance(value, Case) else None
)
def test_trained_networks_are_the_integer_programs_bitwise(case, widths, learned):
    """Random rounding and clipping in training differ from evaluation."""
    network = quantize(case.fused, real(case.images), LOG_STEP, **widths)
    calibrated = copy.deepcopy(network.state_dict())
    if learned:
        learn_steps_(network)
    train_a_little_(network, case.fused(real(case.images)).detach(), case.images)
    network.eval()
    steps = {name: value for name, value in network.state_dict().items() if name.endswith("log_step")}
    assert any(not torch.equal(value, calibrated[name]) for name, value in steps.items()) == learned
    program, bits = case.lowered(network), widths.get("weight_bits", 8)
    assert_bitwise(case, network, program)
    rows = [weights.rows for weights in program.weights.values() if weights.rows.size]
    assert max(np.abs(each).max() for each in rows) < 2 ** (bits - 1 if bits > 1 else 7)
