"""The ladder once more for a small MobileNetV2 with AESPA: depthwise layers, linear bottlenecks, residuals.

Its seven squares in a row are beyond what interval arithmetic proves: bounds are measured.
"""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from privcirnet.artifact import read_program, write_program
from privcirnet.he.encodings.layout import SpectralLayout
from privcirnet.he.encodings.pieces import Piece
from privcirnet.he.encodings.spectral_layer import SpectralLayer
from privcirnet.he.params.parameters import WIDE_COEFFICIENT_BITS, WIDE_RING_DEGREE
from privcirnet.he.planning.cost import COUNTED, LINKS, Profile
from privcirnet.he.planning.fit import Target
from privcirnet.he.planning.planner import cheapest_layer
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.operations import Add, Square, Truncate
from privcirnet.he.ring import sampling
from privcirnet.lower import lower
from privcirnet.models.activation import activation
from privcirnet.models.mobilenetv2 import InvertedResidual
from privcirnet.nn.activations import Aespa
from privcirnet.nn.candidates import uniform_sizes
from privcirnet.nn.convert import circulant_
from privcirnet.nn.fuse import fuse
from privcirnet.nn.quantize import quantize
from privcirnet.pipeline import audit
from privcirnet.pipeline.export import seen_on
from tests.he.parties import protocol

LEVELS, LOG_STEP, SHAPE = 16, -4, (1, 7, 7)
WIDE = Profile("counted, wide", WIDE_RING_DEGREE, WIDE_COEFFICIENT_BITS, COUNTED.seconds)


class SmallMobileNet(nn.Module):
    """MobileNetV2's blocks of every kind on maps of odd size, with channels that are no powers of two."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.stem_act = activation("aespa", 8)
        self.first = InvertedResidual(8, 12, 1, 1, "aespa")
        self.down = InvertedResidual(12, 12, 2, 2, "aespa")
        self.same = InvertedResidual(12, 12, 1, 3, "aespa")
        self.last, self.last_norm = nn.Conv2d(12, 20, 1, bias=False), nn.BatchNorm2d(20)
        self.last_act, self.pool, self.flatten = activation("aespa", 20), nn.AvgPool2d(4), nn.Flatten()
        self.classifier = nn.Linear(20, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.same(self.down(self.first(self.stem_act(self.stem_norm(self.stem(x))))))
        return self.classifier(self.flatten(self.pool(self.last_act(self.last_norm(self.last(x))))))


DEPTHWISE = {"first.depthwise": (8, 1), "down.depthwise": (24, 2), "same.depthwise": (36, 1)}
"""Name -> channels, stride."""
BLOCKS = {"stem": 1, "first.project": 4, "same.expand": 4, "same.project": 4, "last": 4, "classifier": 4}


@pytest.fixture(scope="module", autouse=True)
def plans_with_several_ciphertexts():
    """One ciphertext holds these small maps whole: depthwise layers are cut in tiles and in pieces that are unlike."""

    def cut(shape, b, profile, link):
        if shape.kind != "depthwise":
            return cheapest_layer(shape, b, profile, link)
        _, height, width = shape.output_shape
        tile = (height // 2 + 1, width)
        tiles = SpectralLayout(shape, b, tile).tiles
        some = shape.groups // 3
        pieces = *(Piece(some, tiles, 1, 1),) * 2, Piece(shape.groups - 2 * some, tiles, 4, 1)
        return SpectralLayer(shape, b, profile.ring_degree, tile, pieces)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("privcirnet.he.planning.fit.planned_layer", cut)
        yield


@pytest.fixture(scope="module")
def images():
    return torch.randint(0, LEVELS + 1, (24, *SHAPE), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def model(images):
    """Circulant, its norms and activations measured and no longer what they start from."""
    torch.manual_seed(0)
    dense = SmallMobileNet().double()
    model = circulant_(dense, uniform_sizes(dense, 4))
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.add_(0.2 * torch.randn_like(module.weight))
                module.bias.add_(0.2 * torch.randn_like(module.bias))
            elif isinstance(module, Aespa):
                module.log_gamma.add_(0.2 * torch.randn_like(module.log_gamma))
        for _ in range(60):
            model(real(images))
    return model.eval()


@pytest.fixture(scope="module")
def fused(model):
    return fuse(model)


@pytest.fixture(scope="module")
def quantized(fused, images):
    return quantize(fused, [real(images)], LOG_STEP).eval()


@pytest.fixture(scope="module")
def program(quantized, images):
    target = Target(WIDE, LINKS["local"], failure_bits=4, seen=seen_on(quantized, real(images)), margin_bits=1)
    return lower(quantized, SHAPE, LEVELS, LOG_STEP, target)


def real(images):
    return images.double() * 2.0**LOG_STEP


@torch.no_grad()
def test_rung_circulant_to_fused(model, fused, images):
    """Seven squares in a row: an error doubles in each, so 2^7 times what test_ladder allows."""
    expected = model(real(images))
    torch.testing.assert_close(fused(real(images)), expected, rtol=0, atol=2e-8 * expected.abs().max().item())


@torch.no_grad()
def test_rung_fused_to_fake_quant(fused, quantized, images):
    fine, coarse = fused(real(images)), quantized(real(images))
    assert (fine - coarse).abs().max() < 0.25 * fine.abs().max()
    assert not torch.equal(fine, coarse)


@torch.no_grad()
def test_rung_fake_quant_to_integer_program_is_bitwise(quantized, program, images):
    expected = quantized(real(images)).numpy()
    for image, wanted in zip(images.numpy(), expected, strict=True):
        logits = interpret(program, image)[program.output.name].reshape(-1)
        assert np.array_equal(logits * 2.0**program.output.log_step, wanted)


def test_rung_program_to_folder_and_back(program, tmp_path):
    write_program(tmp_path / "program", program, {}, full=True)
    again, spectra = read_program(tmp_path / "program")
    assert (again.nodes, again.parameters) == (program.nodes, program.parameters)
    for node, layer in program.linear_nodes:
        rows = program.weights[node.name].rows
        assert np.array_equal(again.weights[node.name].rows, rows)
        if layer.shape.groups > 1:
            assert rows.shape == (layer.shape.in_channels, 1, 3, 3)
            phases = layer.shape.stride**2
            assert spectra[node.name].shape == (layer.shape.in_channels, 1, phases, 1, *layer.layout.extent)


def test_rung_integer_program_to_clear_text_engine(program, images):
    for image in images[:6].numpy():
        logits, values, _ = protocol(program, "cleartext", image)
        assert audit.wrong_nodes(program, values) == []
        told = interpret(program, image, lambda node, _, v=values: v[node.name])
        assert np.array_equal(told[program.output.name], logits)


@pytest.mark.parametrize("engine", ["tenseal", "kernel"])
def test_rung_clear_text_engine_to_encrypted_is_bitwise(program, images, monkeypatch, engine):
    """With the same masks all engines give the same shares of every node, bit for bit."""
    results = []
    for each in ("cleartext", engine):
        random = np.random.default_rng(7)
        monkeypatch.setattr(sampling, "uniform", lambda shape, t, r=random: r.integers(0, t, shape, dtype=np.uint64))
        results.append(protocol(program, each, images[0].numpy()))
    (clear, clear_values, _), (encrypted, encrypted_values, meter) = results
    assert np.array_equal(clear, encrypted)
    assert all(np.array_equal(clear_values[name], encrypted_values[name]) for name in clear_values)
    for node, layer in program.linear_nodes:
        counts = meter.counts[node.name]
        assert (counts["rotate"], counts["pmult"]) == (layer.rotations, layer.pmults)
        if layer.shape.kind == "depthwise":
            assert (counts["rotate"], counts["pmult"]) == (0, layer.ciphertexts_in)
            assert layer.ciphertexts_in == (3 if layer.shape.stride == 1 else 4 + 4 + 1)


def test_the_ladder_has_something_to_carry(program):
    """A guard for the tests above."""
    layers = {node.module: layer for node, layer in program.linear_nodes}
    depthwise = {name: layer for name, layer in layers.items() if layer.shape.kind == "depthwise"}
    found = {name: (layer.shape.groups, layer.shape.stride) for name, layer in depthwise.items()}
    assert found == DEPTHWISE
    assert {name: layers[name].block_size for name in BLOCKS} == BLOCKS
    assert all((layer.layout.tiles, len(layer.pieces)) == (2, 3) for layer in depthwise.values())
    operations = [node.operation for node in program.nodes]
    assert sum(isinstance(operation, Square) for operation in operations) == 7
    assert sum(isinstance(operation, Add) for operation in operations) == 1
    by_name = {node.name: node.operation for node in program.nodes}
    sources = [by_name[node.inputs[0]] for node, _ in program.linear_nodes]
    assert sum(isinstance(source, Add) for source in sources) == 1, "a layer behind a residual without activation"
    squared = {node.inputs[0] for node in program.nodes if isinstance(node.operation, Square)}
    truncated = {node.inputs[0]: node.name for node in program.nodes if isinstance(node.operation, Truncate)}
    names = {node.module: truncated.get(node.name) for node, _ in program.linear_nodes}
    assert {name for name, after in names.items() if after not in squared} == {
        *(f"{block}.project" for block in ("first", "down", "same")),
        "classifier",
    }
