"""The steps that one network is enough for: from dense to circulant and guard bits."""

from functools import lru_cache

import pytest
import torch

from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.plan_program import Target
from privcirnet.models import DigitsResNet
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.functional.circulant import expand, project
from privcirnet.nn.quantization_steps import refine
from privcirnet.nn.quantizers import quantizer_of
from privcirnet.passes.convert import circulant_, dense_state_dict
from privcirnet.passes.lower import drafts, refined
from tests.ladder import digits
from tests.ladder.case import LEVELS, LOG_STEP, PROVED, WIDE, assert_bitwise, real
from tests.ladder.digits import BLOCKS, DIGITS


@lru_cache
def dense():
    return digits.dense(DIGITS.images)


@torch.no_grad()
def test_dense_to_circulant():
    """Each weight is exactly the expansion of the projection of the dense one; b = 1 is the dense weight itself."""
    for name, b in BLOCKS.items():
        weight = dense().get_submodule(name).weight
        assert torch.equal(DIGITS.circulant.get_submodule(name).weight, expand(project(weight, b), b))
        assert block_size_of(DIGITS.circulant.get_submodule(name)) == b


@torch.no_grad()
def test_circulant_network_of_a_circulant_network():
    """A network that is circulant already (weights and batch norms) is left as it is, bit for bit in its weights."""
    circulant, images = DIGITS.circulant, DIGITS.images
    twin = DigitsResNet().double().eval()
    twin.load_state_dict(dense_state_dict(circulant))
    again = circulant_(twin, {name: b for name, b in BLOCKS.items() if b > 1}).eval()
    for name in BLOCKS:
        assert torch.equal(again.get_submodule(name).weight, circulant.get_submodule(name).weight)
    torch.testing.assert_close(again(real(images)), circulant(real(images)), rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_weights_are_quantized_to_the_nearest_step():
    """They stay circulant, within half a step of the fused ones."""
    for name in BLOCKS:
        layer = DIGITS.quantized.get_submodule(name)
        step = 2.0 ** int(quantizer_of(layer).log_step)
        assert (layer.weight - DIGITS.fused.get_submodule(name).weight).abs().max() <= step / 2


@pytest.mark.parametrize("guard_bits", [0, 1, 3])
def test_guard_bits_to_integer_program_is_bitwise(guard_bits):
    network = refine(DIGITS.quantized, guard_bits)
    assert_bitwise(DIGITS, network, DIGITS.lowered(network))


def test_guard_bits_are_as_many_as_there_is_room_for():
    with digits.plans_that_rotate():
        forms = drafts(DIGITS.quantized, DIGITS.shape, LEVELS, LOG_STEP, PROVED)
        few = refined(forms, PROVED, 2).guard_bits
        lowered = refined(forms, Target(WIDE, LINKS["local"], failure_bits=10), 12)
    assert few == 2
    assert 0 <= lowered.guard_bits < 12
    assert lowered.program.parameters.plain_bits <= 60
