"""Signals (N, C, L) through all verbs, and convolutions and pools whose axes and sides differ, bit for bit."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import privcirnet as pc
from privcirnet.he.layers.shape import Window
from privcirnet.runs.compiled import CompiledProgram

SIGNALS = torch.randn(48, 3, 40, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(48) % 4
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")
QUIET = {"profile": "counted", "progress": False}


def network(channels: int = 16) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv1d(3, channels, 7, stride=2, padding=3), nn.BatchNorm1d(channels), nn.ReLU(), nn.MaxPool1d(2)),
        *(nn.Conv1d(channels, channels, 4, padding="same"), nn.BatchNorm1d(channels), nn.GELU(), nn.AvgPool1d(2)),
        *(nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(channels, 4)),
    ).eval()


def program_of(model: nn.Module, given: Tensor) -> tuple[CompiledProgram, Tensor]:
    """A program whose logits are those of the quantized network, and these of two inputs."""
    quantized = pc.quantize(model, given)
    program = pc.compile(quantized, given, reference=model, **QUIET)
    logits = quantized(given[:2]).detach()
    assert_close(program(given[:2], check=True, engine="cleartext"), logits, rtol=0, atol=0)
    return program, logits


def windows(program: CompiledProgram, name: str) -> tuple[Window, Window]:
    return next(layer.shape.windows for module, layer in named_layers(program) if module == name)


def named_layers(program: CompiledProgram):
    return [(node.module, layer) for node in program.integer.nodes for layer in node.operation.layers]


def test_signals_run_through_all_verbs_as_they_are(tmp_path):
    model = network()
    found = pc.check(model, SIGNALS, **QUIET)
    assert not found.refusals
    assert str(found.changes[0]) == "0: Conv1d -> Conv2d"
    assert len(found.forecasts) == 2
    pc.fit(model, (SIGNALS, LABELS), epochs=1, validation=(SIGNALS, LABELS), progress=False)
    plan = pc.search(model, (SIGNALS, LABELS), budget=pc.uniform(4), samples=16, **QUIET)
    assert plan.block_sizes.keys() == {"0", "4", "10"}
    pc.circulant_(model, {"4": 4}, images=SIGNALS)
    pc.fit(model, (SIGNALS, LABELS), epochs=1, progress=False)
    assert isinstance(model[4], nn.Conv1d)
    program, logits = program_of(model, SIGNALS)
    assert (program.image, windows(program, "0")) == ((3, 1, 40), (Window(), Window(7, 2, 3)))
    assert [layer.block_size for module, layer in named_layers(program)] == [1, 4, 1]
    program.save(tmp_path / "program")
    again = pc.load(tmp_path / "program")
    for form in (SIGNALS[:2], SIGNALS[:2, :, None], SIGNALS[:2].numpy()):
        assert_close(torch.as_tensor(again(form, engine="cleartext")), logits, rtol=0, atol=0)
    for one in (SIGNALS[0], SIGNALS[0, :, None]):
        with pytest.raises(pc.RuleError, match=r"images must have a batch axis: got shape .* give images\[:1\] or"):
            again(one)
    with pytest.raises(pc.RuleError, match=r"must be \(N, 3, 1, 40\), as compiled: got shape \(2, 3, 39\)"):
        again(SIGNALS[:2, :, 1:])


def test_signals_through_polynomials():
    model = network()
    changes = pc.polynomial_(model, SIGNALS)
    assert any(str(change).startswith("2: ReLU -> Aespa2d") for change in changes)
    pc.fit(model, (SIGNALS, LABELS), epochs=1, progress=False)
    pc.circulant_(model, {"4": 4}, images=SIGNALS)
    expected, fused = model(SIGNALS), pc.fuse(model)
    assert_close(fused(SIGNALS), expected, rtol=1e-4, atol=1e-4)
    program = pc.compile(pc.quantize(fused, SIGNALS), SIGNALS, failure_bits=20, **QUIET)
    assert program(SIGNALS[:1], check=True, engine="cleartext").shape == (1, 4)


@pytest.mark.parametrize(("name", "value"), [("flip", True), ("crop", 2.0), ("cutmix", 1.0), ("channels_last", True)])
def test_what_changes_pictures_is_refused_before_any_step(name, value):
    for given, model in ((SIGNALS, network()), (SIGNALS[:, 0], nn.Linear(40, 4))):
        before = [parameter.clone() for parameter in model.parameters()]
        with pytest.raises(pc.RuleError, match=f"no rows and columns to change: got {name}; leave it out, or augment"):
            pc.fit(model, (given, LABELS), progress=False, **{name: value})
        assert_close(list(model.parameters()), before)


def test_tokens_as_the_input():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 8), nn.ReLU(), nn.Flatten(), nn.Linear(24, 4)).eval()
    program, _ = program_of(model, SIGNALS)
    assert program.image == (3, 1, 40)


def test_channels_of_other_units_have_steps_of_their_own():
    given = SIGNALS * torch.tensor([2000.0, 1.0, 0.002])[:, None]
    model = network()
    model(given)
    model[0].weight.data *= torch.tensor([0.0005, 1.0, 500.0])[:, None]
    quantized = pc.quantize(model, given)
    expected = model(given).detach()
    assert (quantized(given) - expected).abs().max() < 0.1 * expected.abs().max()
    program_of(model, given)


class Rectangles(nn.Module):
    """Kernels, strides, zeros and pools that differ by axis and by side, as in networks for EEG and spectrograms."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Conv2d(1, 8, (1, 6), padding="same", bias=False)
        self.space = nn.Conv2d(8, 16, (5, 1), groups=8)
        self.norm, self.act, self.pool = nn.BatchNorm2d(16), nn.ELU(), nn.AvgPool2d((1, 2))
        self.pad = nn.ZeroPad2d((2, 0, 0, 1))
        self.both = nn.Conv2d(16, 16, (2, 3), stride=(2, 3))
        self.most = nn.MaxPool2d((1, 3), (1, 2), (0, 1))
        self.depthwise = nn.Conv2d(16, 16, (1, 3), stride=(1, 2), padding=(0, 1), groups=16)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.act(self.norm(self.space(self.time(x)))))
        x = self.most(self.both(self.pad(x)).relu())
        return self.head(self.depthwise(x).relu().mean((2, 3)))


@pytest.mark.parametrize("b", [1, 4])
def test_axes_and_sides_may_differ(b):
    torch.manual_seed(0)
    model, given = Rectangles().eval(), torch.randn(32, 1, 6, 48)
    pc.circulant_(model, {"both": b}, images=given)
    program, _ = program_of(model, given)
    assert windows(program, "time") == (Window(), Window(6, 1, 2, 3))
    assert windows(program, "both") == (Window(2, 2, 0, 1), Window(3, 3, 2, 0))
    assert windows(program, "depthwise") == (Window(), Window(3, 2, 1))
    sizes = {module: layer.block_size for module, layer in named_layers(program)}
    assert sizes["both"] == b


def test_they_run_encrypted():
    """Every value of both parties is the integer network's, with real keys and oblivious transfers."""
    torch.manual_seed(0)
    for model, given in ((network(8), SIGNALS), (Rectangles().eval(), torch.randn(32, 1, 6, 48))):
        quantized = pc.quantize(model, given)
        program = pc.compile(quantized, given, **QUIET)
        found = program(given[:1].numpy(), check=True)
        assert isinstance(found, np.ndarray)
        assert_close(torch.from_numpy(found), quantized(given[:1]).detach(), rtol=0, atol=0)
        program.close()
