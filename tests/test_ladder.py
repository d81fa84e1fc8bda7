"""The ladder: one equality test for each arrow of the pipeline. The first broken rung names the place.

dense -> circulant -> fused -> fake-quant -> (guard bits) -> integer program -> program folder -> clear-text engine -> encrypted

Where the arithmetic is the same the rung is bitwise; elsewhere the tolerance comes with its derivation.
"""

import copy
import math

import numpy as np
import pytest
import torch

from privcirnet.artifact import read_program, write_program
from privcirnet.functional.circulant import expand, project
from privcirnet.he.params.parameters import WIDE_COEFFICIENT_BITS, WIDE_RING_DEGREE
from privcirnet.he.planning.cost import COUNTED, LINKS, Profile
from privcirnet.he.planning.fit import Target
from privcirnet.he.planning.planner import candidate_layers
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.operations import Linear, Truncate
from privcirnet.he.ring import sampling
from privcirnet.lower import lower, lower_refined
from privcirnet.models import DigitsResNet
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.convert import circulant_
from privcirnet.nn.fuse import fuse
from privcirnet.nn.learned import fix_steps_, follow_learned_steps_, learn_steps_, learned_steps
from privcirnet.nn.quantize import quantize
from privcirnet.nn.quantizers import quantizer_of
from privcirnet.nn.steps import refine
from privcirnet.pipeline import audit
from tests.he.parties import protocol

BLOCKS = {"stem": 1, "down": 4, "conv1": 8, "conv2": 16, "classifier": 2}
LEVELS, LOG_STEP, SHAPE = 16, -4, (1, 8, 8)
WIDE = Profile("counted, wide", WIDE_RING_DEGREE, WIDE_COEFFICIENT_BITS, COUNTED.seconds)
TARGET = Target(WIDE, LINKS["local"], failure_bits=4)


@pytest.fixture(scope="module", autouse=True)
def plans_that_rotate():
    """These layers are so small that no plan worth its price rotates: take the ones that rotate most."""

    def restless(shape, b, profile, link):
        layers = candidate_layers(shape, b, profile.ring_degree)
        return max(layers, key=lambda layer: (all(rotations_of(layer)), layer.rotations))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("privcirnet.he.planning.fit.planned_layer", restless)
        yield


def rotations_of(layer):
    """Rotations of baby steps, of giant steps and of folds."""
    plans = [placed.plan for placed in layer.placed]
    return [
        sum(len(getattr(plan, kind)) for plan in plans)
        for kind in ("baby_rotations", "giant_rotations", "fold_rotations")
    ]


@pytest.fixture(scope="module")
def images():
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, LEVELS + 1, (24, *SHAPE), generator=generator)


@pytest.fixture(scope="module")
def dense(images):
    """A network whose batch norms have seen data, so that nothing on the ladder is trivially the identity."""
    torch.manual_seed(0)
    model = DigitsResNet().double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
        for _ in range(30):
            model(real(images))
    return model.eval()


@pytest.fixture(scope="module")
def circulant(dense):
    return circulant_(copy.deepcopy(dense), {name: b for name, b in BLOCKS.items() if b > 1}).eval()


@pytest.fixture(scope="module")
def fused(circulant):
    return fuse(circulant)


@pytest.fixture(scope="module")
def quantized(fused, images):
    return quantize(fused, [real(images)], LOG_STEP).eval()


@pytest.fixture(scope="module")
def program(quantized):
    return lower(quantized, SHAPE, LEVELS, LOG_STEP, TARGET)


def real(images):
    return images.double() * 2.0**LOG_STEP


def logits_of(program, image):
    return interpret(program, image)[program.output.name].reshape(-1)


@torch.no_grad()
def test_rung_dense_to_circulant(dense, circulant):
    """Each weight is exactly the expansion of the projection of the dense one; b = 1 is the dense weight itself."""
    for name, b in BLOCKS.items():
        weight = dense.get_submodule(name).weight
        assert torch.equal(circulant.get_submodule(name).weight, expand(project(weight, b), b))
        assert block_size_of(circulant.get_submodule(name)) == b


@torch.no_grad()
def test_rung_circulant_network_of_a_circulant_network(circulant, images):
    """A network that is circulant already (weights and batch norms) is left as it is, bit for bit in its weights."""
    twin = DigitsResNet().double().eval()
    twin.load_state_dict(_dense_state(circulant))
    again = circulant_(twin, {name: b for name, b in BLOCKS.items() if b > 1}).eval()
    for name in BLOCKS:
        assert torch.equal(again.get_submodule(name).weight, circulant.get_submodule(name).weight)
    torch.testing.assert_close(again(real(images)), circulant(real(images)), rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_rung_circulant_to_fused(circulant, fused, images):
    """Folding reorders a handful of float64 operations a value: 1e-10 is about 2^19 units in the last place."""
    torch.testing.assert_close(fused(real(images)), circulant(real(images)), rtol=1e-10, atol=1e-10)
    for name, b in BLOCKS.items():
        assert block_size_of(fused.get_submodule(name)) == b


@torch.no_grad()
def test_rung_fused_to_fake_quant(fused, quantized, images):
    """Weights stay circulant and within half a step of the fused ones; so the logits stay near."""
    for name in BLOCKS:
        layer = quantized.get_submodule(name)
        step = 2.0 ** int(quantizer_of(layer).log_step)
        assert (layer.weight - fused.get_submodule(name).weight).abs().max() <= step / 2
    fine, coarse = fused(real(images)), quantized(real(images))
    assert (fine - coarse).abs().max() < 0.25 * fine.abs().max()
    assert not torch.equal(fine, coarse)


@torch.no_grad()
@pytest.mark.parametrize("guard_bits", [0, 1, 3])
def test_rung_fake_quant_to_integer_program_is_bitwise(quantized, images, guard_bits):
    """float64 carries every integer of this network exactly, so both sides are the same numbers."""
    network = refine(quantized, guard_bits)
    program = lower(network, SHAPE, LEVELS, LOG_STEP, TARGET)
    expected = network(real(images)).numpy()
    for image, wanted in zip(images.numpy(), expected, strict=True):
        assert np.array_equal(logits_of(program, image) * 2.0**program.output.log_step, wanted)


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("bits", [4, 5, 6, 7, 8])
def test_rung_fake_quant_to_integer_program_at_every_width(fused, images, bits, learned):
    """Trained for a few steps, which at random rounding and clipping differ from evaluation; then bitwise again."""
    network = quantize(fused, [real(images)], LOG_STEP, weight_bits=bits, activation_bits=bits)
    calibrated = copy.deepcopy(network.state_dict())
    if learned:
        learn_steps_(network, bits)
    train_a_little_(network, fused(real(images)).detach(), images)
    network.eval()
    steps = {name: value for name, value in network.state_dict().items() if name.endswith("log_step")}
    assert any(not torch.equal(value, calibrated[name]) for name, value in steps.items()) == learned
    program = lower(network, SHAPE, LEVELS, LOG_STEP, TARGET)
    expected = network(real(images)).detach().numpy()
    for image, wanted in zip(images.numpy(), expected, strict=True):
        assert np.array_equal(logits_of(program, image) * 2.0**program.output.log_step, wanted)
    for weights in program.weights.values():
        assert np.abs(weights.rows).max() < 2 ** (bits - 1)


def train_a_little_(network, target, images):
    """Towards logits; steps are learned fast, so that some change."""
    torch.manual_seed(0)
    steps = learned_steps(network)
    weights = [p for p in network.parameters() if not any(p is step for step in steps)]
    optimizer = torch.optim.Adam([{"params": weights, "lr": 1e-3}, {"params": steps, "lr": 0.3}])
    network.train()
    for _ in range(5):
        optimizer.zero_grad()
        (network(real(images)) - target).square().mean().backward()
        optimizer.step()
        follow_learned_steps_(network)
    fix_steps_(network)


def test_guard_bits_are_as_many_as_there_is_room_for(quantized):
    few = lower_refined(quantized, SHAPE, LEVELS, LOG_STEP, TARGET, 2).guard_bits
    strict = Target(WIDE, LINKS["local"], failure_bits=10)
    lowered = lower_refined(quantized, SHAPE, LEVELS, LOG_STEP, strict, 12)
    assert few == 2
    assert 0 <= lowered.guard_bits < 12
    assert lowered.program.parameters.plain_bits <= 60


def test_rung_program_to_folder_and_back(program, tmp_path):
    write_program(tmp_path / "program", program, {})
    again, spectra = read_program(tmp_path / "program")
    assert again.nodes == program.nodes
    assert again.parameters == program.parameters
    assert set(spectra) == set(program.weights)
    for name, weights in program.weights.items():
        assert np.array_equal(again.weights[name].rows, weights.rows)
        assert np.array_equal(again.weights[name].bias, weights.bias)


@pytest.mark.parametrize("masks", ["uniform", "bounded"])
def test_rung_integer_program_to_clear_text_engine(quantized, images, masks):
    """Exactly equal, once the interpreter is told which way each truncation went; and that is by at most one unit."""
    target = Target(WIDE, LINKS["local"], masks, failure_bits=4, hiding_bits=4)
    program = lower(quantized, SHAPE, LEVELS, LOG_STEP, target)
    for image in images[:6].numpy():
        logits, values, _ = protocol(program, "cleartext", image)
        assert audit.wrong_nodes(program, values) == []
        told = interpret(program, image, lambda node, _, v=values: v[node.name])
        assert np.array_equal(told[program.output.name], logits)
        first = next(n for n in program.nodes if isinstance(n.operation, Truncate))
        nearest = interpret(program, image)
        assert np.abs(nearest[first.name] - values[first.name]).max() == 1


def test_rung_clear_text_engine_to_encrypted_is_bitwise(program, images, monkeypatch):
    """With the same masks both engines give the same shares of every node, bit for bit."""
    for image in images[:2].numpy():
        results = []
        for engine in ("cleartext", "tenseal"):
            random = np.random.default_rng(7)
            monkeypatch.setattr(
                sampling, "uniform", lambda shape, t, r=random: r.integers(0, t, shape, dtype=np.uint64)
            )
            results.append(protocol(program, engine, image))
        (clear, clear_values, _), (encrypted, encrypted_values, _) = results
        assert np.array_equal(clear, encrypted)
        assert all(np.array_equal(clear_values[name], encrypted_values[name]) for name in clear_values)


@pytest.mark.parametrize("engine", ["cleartext", "tenseal"])
def test_counted_operations_are_the_planned_ones(program, images, engine):
    _, _, meter = protocol(program, engine, images[0].numpy())
    for node in program.nodes:
        counts = meter.counts[node.name]
        if isinstance(node.operation, Linear):
            layer = node.operation.layer
            assert (counts["rotate"], counts["pmult"]) == (layer.rotations, layer.pmults)


def _dense_state(model):
    from privcirnet.nn.convert import dense_state_dict

    return dense_state_dict(model)


def test_the_ladder_has_something_to_carry(program):
    """A guard for the tests above: the network has stride, residual, squares and circulant layers."""
    operations = [type(node.operation).__name__ for node in program.nodes]
    assert operations.count("Square") == 2
    assert {"Add", "SumPool", "Flatten"} <= set(operations)
    layers = [layer for _, layer in program.linear_nodes]
    assert {layer.shape.stride for layer in layers} == {1, 2}
    assert sorted(layer.block_size for layer in layers) == sorted(BLOCKS.values())
    assert any(all(rotations_of(layer)) for layer in layers), "baby steps, giant steps and folds"
    assert math.prod(SHAPE) == 64
