import copy
import dataclasses
import math
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn

from privcirnet.artifact.summaries import TruncationTrial
from privcirnet.config import CompileConfig, HEConfig
from privcirnet.data import ImageData, load
from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.planning.plan_program import check_carried
from privcirnet.he.program import bounds, manifest
from privcirnet.he.program.exact import ExactReLU, ExactTruncate
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import Scale, Truncate
from privcirnet.nn.activations import Aespa2d
from privcirnet.passes.fuse import fuse
from privcirnet.passes.lower import Lowered
from privcirnet.passes.quantize import quantize
from privcirnet.passes.ranges import ranges
from privcirnet.runs import export
from privcirnet.runs.evaluation import evaluate
from privcirnet.runs.export import MOST_GUARD_BITS, exceeding, lower_for
from privcirnet.runs.interactive import Interactive
from privcirnet.runs.parties import RunOptions
from privcirnet.runs.progress import silent
from tests.ladder.surgery import RESNET

DATA = load("digits")
HELD_OUT = DATA.real(DATA.held_out(512)[0])
SETTINGS = {"profile": "counted", "failure_bits": 0}


class Deep(nn.Module):
    """Eight squares in a row on residuals: more than bounds can be proved for."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, 2, padding=1)
        self.layers = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(8))
        self.activations = nn.ModuleList(Aespa2d(4) for _ in range(8))
        self.head = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(4, 10))

    def forward(self, x):
        x = self.stem(x)
        for layer, activation in zip(self.layers, self.activations, strict=True):
            x = activation(x + layer(x)) if layer is not self.layers[0] else activation(layer(x))
        return self.head(x)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    model = Deep()
    for _ in range(30):
        model(DATA.real(DATA.train_images[:256]))
    return quantize(fuse(model.eval()), DATA.real(DATA.sample(256)[0]), DATA.log_step)


@pytest.fixture(scope="module")
def program(network):
    lowered = lower_for(HEConfig(bounds="measured", **SETTINGS), network, DATA).lowered
    return lowered.program


def test_bounds_of_many_squares_cannot_be_proved(network):
    with pytest.raises(DoesNotFit, match=r"every value must stay under 2\^59, proved: .*; .*he.bounds=measured"):
        lower_for(HEConfig(bounds="proved", **SETTINGS), network, DATA)


def test_bounds_are_measured_where_proved_ones_do_not_fit(network, program):
    assert CompileConfig().bounds == HEConfig().bounds == "auto"
    found = lower_for(HEConfig(**SETTINGS), network, DATA).program
    assert (found.bounds, found.parameters) == ("measured", program.parameters)


def test_an_exact_relu_of_a_long_modulus_does_not_fit():
    """Which is a matter of bounds: others do."""
    step = ExactReLU(0).bounded(0, 2**43)
    node = Node("act", step, ("x",), (1, 1, 1), 0)
    with pytest.raises(
        DoesNotFit, match=r"exact steps must carry the plain modulus: got node act: .* is exceeded; use"
    ):
        check_carried([node], 2**45 - 2**14 + 1)


@pytest.mark.slow
def test_measured_bounds_are_what_was_seen_and_a_margin(network, program):
    seen = ranges(network, DATA.real(DATA.sample(256)[0]))
    as_arrays = {name: bounds.ObservedRange(*(part.numpy() for part in found)) for name, found in seen.items()}
    for margin in (0, 3):
        found = bounds.measured(program.nodes, as_arrays, margin)
        for node in program.nodes:
            ends = as_arrays[node.name].low, as_arrays[node.name].high
            low, high = (end.reshape(node.shape) * 2.0 ** (margin - node.log_step) for end in ends)
            assert ((found[node.name][0] <= low) & (low <= 0) | (found[node.name][0] == -1)).all()
            assert (found[node.name][1] >= high).all()
            assert bounds.largest(found[node.name]) <= max(-low.min(), high.max(), 0) + 2
    images = DATA.sample(256)[0].numpy().astype(np.int64)
    carried = bounds.measured(program.nodes, as_arrays, 2)
    several = [interpret(program, image) for image in images]
    mean = bounds.mean_sizes(program.nodes, as_arrays)
    for node in program.nodes:
        sizes = np.abs([values[node.name] for values in several])
        assert sizes.max() <= bounds.largest(carried[node.name])
        assert abs(sizes.mean(0) - mean[node.name]).max() <= 0.02 * mean[node.name].max() + 2


@pytest.mark.slow
def test_the_failure_probability_is_the_mean_over_the_images(network):
    """Wrapping masks, by hand from the integer network's values."""
    fitted = lower_for(HEConfig(bounds="measured", **SETTINGS), network, DATA).lowered.fitted
    program, counted = fitted.program, 0.0
    images = DATA.sample(256)[0].numpy().astype(np.int64)
    truncated = [node.inputs[0] for node in program.nodes if isinstance(node.operation, Truncate)]
    for image in images:
        values = interpret(program, image)
        counted += sum(float((abs(values[name]) + 1).sum()) for name in truncated) / len(images)
    expected = counted / program.parameters.plain_modulus
    assert bounds.wrap_probability(program, fitted.sizes) == pytest.approx(expected, rel=0.02)
    assert fitted.choice.wants.reached(program.parameters.plain_modulus) == pytest.approx(
        -math.log2(expected), abs=0.03
    )
    assert bounds.wrap_probability(program, bounds.largest_sizes(fitted.intervals)) > 4 * expected


def test_the_program_says_that_its_bounds_were_measured_and_runs(program):
    assert program.bounds == "measured"
    assert manifest.from_dict(manifest.to_dict(program)).bounds == "measured"
    images = DATA.test_images[:2].numpy().astype(np.int64)
    found = evaluate(Interactive(program), images, RunOptions("cleartext"))
    assert found.wrong == [[], []]


def test_held_out_images_are_checked_against_the_modulus(network, program):
    found = exceeding(program, network, HELD_OUT)
    assert found is not None
    assert (found.images, found.beyond) == (360, 0)
    assert found.spare_bits >= 1
    tight = dataclasses.replace(program.parameters, plain_modulus=65537)
    beyond = exceeding(dataclasses.replace(program, parameters=tight), network, HELD_OUT)
    assert beyond is not None
    assert beyond.beyond >= 1
    assert beyond.spare_bits >= 0
    place = next(i for i, node in enumerate(program.nodes) if isinstance(node.operation, Truncate))
    short = dataclasses.replace(program.nodes[place], operation=ExactTruncate(program.nodes[place].operation.bits, 16))
    exact = dataclasses.replace(program, nodes=(*program.nodes[:place], short, *program.nodes[place + 1 :]))
    step = exceeding(exact, network, HELD_OUT)
    assert step is not None
    assert (step.beyond, step.nearest) == (360, ""), "an exact step of few values"
    assert exceeding(dataclasses.replace(program, bounds="proved"), network, HELD_OUT) is None

    with pytest.raises(RuleError, match="bounds must be a known kind: got 'guessed'"):
        manifest.check(dataclasses.replace(program, bounds="guessed"))


def test_a_summand_behind_a_pool_is_checked_like_any_other():
    """It is brought to a finer step in the program, which is no node of the network."""
    images = torch.randint(0, 17, (48, *RESNET.shape), dtype=torch.uint8)
    labels = torch.arange(48) % 4
    data = ImageData(images, labels, images, labels, -4, 16, tuple("abcd"))
    assert any(isinstance(node.operation, Scale) for node in RESNET.program.nodes)
    found = exceeding(RESNET.program, copy.deepcopy(RESNET.quantized).float(), data.real(images))
    assert found
    assert found.images == 48


@pytest.mark.parametrize(("enough", "fits", "taken"), [(2, 12, 2), (5, 12, 5), (9, 7, 7), (99, 99, MOST_GUARD_BITS)])
def test_guard_bits_are_the_fewest_that_no_rehearsed_image_needs_more_of(enough, fits, taken, program, monkeypatch):
    """Free ones are taken as they are, and more only while images change their class and the modulus has room."""
    tried = []

    def refined(drafted, target, bits, least):
        if bits > fits:
            raise DoesNotFit("t must fit", got="more", remedy="less")
        return Lowered(Mock(program=bits), bits, Mock())

    def rehearse(bits, trial, bar):
        tried.append(bits)
        return TruncationTrial(8, changed=int(bits < enough))

    monkeypatch.setattr(export, "refined", refined)
    monkeypatch.setattr(export, "rehearse", rehearse)
    free = Lowered(Mock(program=2), 2, Mock())
    lowered, rehearsal = export._guarded(Mock(), Mock(), free, Mock(), silent)
    assert lowered.guard_bits == taken
    assert tried == [*range(2, taken + 1)]
    assert bool(rehearsal.changed) == (taken < enough)
