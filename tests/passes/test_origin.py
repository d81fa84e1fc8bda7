"""What quantization loses is said, and images in several units lose little."""

import pytest
import torch
from torch import nn

import privcirnet as pc
from privcirnet.errors import RuleError
from privcirnet.passes.difference import difference
from privcirnet.passes.equalize import scale_channels_
from privcirnet.passes.fuse import fuse_at
from privcirnet.passes.quantize import input_quantizer, with_quantizers

OPTIONS = {"profile": "counted", "progress": False}
UNITS = torch.logspace(-2, 4, 8).view(8, 1, 1)


def images(count: int = 64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return UNITS * (torch.randn(count, 8, 2, 2, generator=generator) + 2)


def network(*first: nn.Module) -> nn.Sequential:
    """A layer that brings all channels to one size, then two more."""
    torch.manual_seed(0)
    scale = nn.Conv2d(8, 8, 1, bias=False)
    with torch.no_grad():
        scale.weight.copy_(torch.randn(8, 8, 1, 1) / UNITS.view(1, 8, 1, 1))
    return nn.Sequential(*first, scale, nn.ReLU(), nn.Flatten(), nn.Linear(32, 4)).eval()


def test_channels_of_several_units_have_steps_of_their_own(tmp_path):
    model, shown = network(), images()
    quantized = pc.quantize(model, shown)
    assert len(set(input_quantizer(quantized).exponents.tolist())) > 5
    found = difference(quantized)
    assert (found.share < 0.05, found.large) == (True, False)
    program = pc.compile(quantized, shown, **OPTIONS)
    assert "8 bits: 64 of the first 64 images keep their class" in str(program)
    program.save(tmp_path / "program")
    for each in (program, pc.load(tmp_path / "program")):
        with torch.no_grad():
            assert torch.equal(each(shown[:4], engine="cleartext", check=True), quantized(shown[:4]))
        with pytest.raises(RuleError, match=r"pixels must be in .* in channel \d, as compiled"):
            each(shown[:1] * 5)
    twin = with_quantizers(fuse_at(model, shown))
    twin.load_state_dict(quantized.state_dict())
    with torch.no_grad():
        assert torch.equal(twin(shown), quantized(shown))


@pytest.mark.parametrize("first", [(), (nn.Flatten(),)], ids=["map", "vector"])
def test_factors_are_in_the_weights(first):
    shown = images()[:, :, :1, :1]
    layer = nn.Linear(8, 3) if first else nn.Conv2d(8, 3, 1)
    graph = fuse_at(nn.Sequential(*first, layer), shown)
    wanted = graph(shown)
    factors = torch.exp2(scale_channels_(graph, shown).double()).view(1, 8, 1, 1)
    assert torch.allclose(graph((shown / factors).float()), wanted, rtol=1e-4, atol=1e-4)


def test_channels_that_are_alike_keep_one_step():
    shown = torch.rand(32, 3, 8, 8) * torch.tensor([1, 2, 3]).view(3, 1, 1)
    graph = pc.fuse(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)))
    assert input_quantizer(pc.quantize(graph, shown)).exponents is None


def test_losses_are_said_with_what_rounds_to_nothing():
    """With one step for all, which a given one is."""
    model, shown = network(), images()
    with pytest.warns(
        UserWarning, match=r"\d+ of the first 64 images keep their class, logits .* off; input channel 0, .*nothing"
    ):
        quantized = pc.quantize(model, shown, 7)
    with pytest.warns(UserWarning, match="of the first 64 images keep their class"):
        pc.compile(quantized, shown, **OPTIONS)


def test_a_network_without_steps_is_not_compiled():
    quantized = with_quantizers(fuse_at(network(), images()))
    with pytest.raises(RuleError, match=r"must have steps: .*give quantize\(model, images\)"):
        pc.compile(quantized, images(), **OPTIONS)
