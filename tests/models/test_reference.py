"""Every network registered here: shapes as the papers', conversion, tracing, arguments."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from benchmarks.bench.networks import NETWORKS, network_shapes
from privcirnet.errors import RuleError
from privcirnet.he.layers.shape import LinearShape
from privcirnet.models import ENTRY_POINTS
from privcirnet.models.registry import ACTIVATIONS, activation
from privcirnet.nn.activations import Aespa2d, Square
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.functional.circulant import is_circulant
from privcirnet.nn.graph import trace
from privcirnet.passes.convert import circulant_
from privcirnet.passes.fuse import fuse
from tests import tolerances

IMAGES = {
    "mobilenetv2_cifar": 32,
    "mobilenetv2_tiny": 64,
    "mobilenetv2_imagenet": 224,
    "resnet18_cifar": 32,
    "resnet18_tiny": 64,
    "vit_cifar": 32,
    "vit_tiny_imagenet": 64,
}
"""Network -> side of its image."""

REFERENCE = {name: name for name in NETWORKS} | {
    "mobilenetv2_tiny": "mobilenetv2_cifar",
    "resnet18_tiny": "resnet18_cifar",
}
"""Network -> the reference whose layers it has."""

SMALL = {
    "mobilenetv2_cifar": {"width": 0.25, "image_size": 16},
    "mobilenetv2_tiny": {"width": 0.25, "image_size": 32},
    "resnet18_cifar": {"width": 8, "image_size": 16},
    "resnet18_tiny": {"width": 8, "image_size": 32},
    "vit_cifar": {"width": 16, "depth": 2, "image_size": 16},
    "vit_tiny_imagenet": {"width": 24, "depth": 2, "image_size": 16},
}
"""Network -> arguments of a small one."""


def shape_of(module: nn.Module, x: Tensor) -> LinearShape:
    if isinstance(module, nn.Linear):
        return LinearShape.gemm(x[0].numel() // x.shape[-1], module.in_features, module.out_features)
    assert isinstance(module, nn.Conv2d)
    (kernel, _), (stride, _), (padding, _) = module.kernel_size, module.stride, module.padding
    assert (kernel, stride, padding) == (module.kernel_size[1], module.stride[1], module.padding[1])
    return LinearShape(*x.shape[2:], module.in_channels, module.out_channels, kernel, stride, padding, module.groups)


def traced_shapes(model: nn.Module, size: int) -> dict[str, LinearShape]:
    shapes = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            module.register_forward_hook(lambda m, x, _, name=name: shapes.update({name: shape_of(m, x[0])}))
    with torch.no_grad():
        model.eval()(torch.zeros(1, 3, size, size))
    return shapes


@pytest.mark.parametrize("name", sorted(IMAGES))
def test_layers_are_those_of_the_papers_in_their_order(name):
    expected = network_shapes(REFERENCE[name])
    shapes = traced_shapes(ENTRY_POINTS[name](), IMAGES[name])
    if name == "resnet18_tiny":
        assert shapes["stem"] == LinearShape(64, 64, 3, 64, 3, 2, 1)
    searched = {key: shape for key, shape in shapes.items() if key in expected}
    assert list(searched.items()) == list(expected.items())
    dense = {key.split(".")[-1] for key in shapes.keys() - expected.keys()}
    assert (
        dense
        == {
            "mobilenetv2": {"stem", "depthwise", "project", "last", "classifier"},
            "resnet18": {"stem", "classifier"},
            "vit": {"patch_embed"},
        }[name.split("_")[0]]
    )


@pytest.mark.parametrize("name", sorted(IMAGES))
def test_searched_layers_become_circulant(name):
    b = 8
    model = ENTRY_POINTS[name]().eval()
    layers = {key: b for key, s in network_shapes(REFERENCE[name]).items() if s.out_channels % b == 0}
    assert set(network_shapes(REFERENCE[name])) - set(layers) == ({"head"} if name == "vit_cifar" else set())
    before = sum(p.numel() for p in model.parameters())
    weights = sum(model.get_submodule(key).weight.numel() for key in layers)
    norms = 0
    if "vit" not in name:
        norms = sum(2 * model.get_submodule(key).out_channels for key in layers)
    circulant_(model, layers)
    assert all(block_size_of(model.get_submodule(key)) == b for key in layers)
    assert sum(p.numel() for p in model.parameters()) == before - (weights + norms) * (b - 1) // b
    classes = {"cifar": 10, "tiny": 200, "imagenet": 1000}[name.split("_")[1]]
    with torch.no_grad():
        assert model(torch.rand(1, 3, IMAGES[name], IMAGES[name])).shape == (1, classes)


def small(name: str, **options: object) -> nn.Module:
    torch.manual_seed(0)
    return ENTRY_POINTS[name](**(SMALL[name] | options))


@pytest.mark.parametrize("activation_name", ["relu", "relu6", "gelu", "square", "aespa"])
@pytest.mark.parametrize("name", sorted(SMALL))
def test_arguments_training_step_and_graph(name, activation_name):
    model = small(name, num_classes=7, in_chans=2, activation=activation_name)
    kinds = {type(module) for module in model.modules()}
    assert type(activation(activation_name, 8, "vit" in name)) in kinds
    size = SMALL[name]["image_size"]
    x = torch.rand(2, 2, size, size)
    assert model(x).shape == (2, 7)
    model(x).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    model.eval()
    assert torch.equal(trace(model)(x), model(x))


@pytest.mark.parametrize(
    "name", sorted({*IMAGES, "resnet20_cifar", "lola_mnist", "lola_cifar", "tutorial_mnist", "digits_resnet"})
)
def test_there_are_no_pretrained_weights(name):
    with pytest.raises(RuleError, match=f"there are no pretrained weights .*: got pretrained=True for '{name}'"):
        ENTRY_POINTS[name](pretrained=True)


@pytest.mark.parametrize("name", sorted({*IMAGES, "resnet20_cifar", "lola_mnist", "lola_cifar", "tutorial_mnist"}))
def test_an_unknown_argument_is_not_swallowed(name):
    with pytest.raises(TypeError, match="widht"):
        ENTRY_POINTS[name](widht=2)
    with pytest.raises(RuleError, match="the activation must be a known one: got 'swish'; use one of relu, relu6"):
        ENTRY_POINTS[name](activation="swish")


@pytest.mark.parametrize(
    ("name", "size", "stride"), [("mobilenetv2_cifar", 12, 8), ("resnet18_tiny", 8, 16), ("vit_cifar", 30, 4)]
)
def test_an_image_size_must_fit_the_strides(name, size, stride):
    message = f"strides must divide the image size: got {size} for a stride of {stride}"
    with pytest.raises(RuleError, match=message):
        ENTRY_POINTS[name](image_size=size)


@pytest.mark.parametrize("name", [name for name in ACTIVATIONS if name != "aespa"])
def test_activations_by_name(name):
    x = torch.tensor([-2.0, 0.5, 7.0])
    expected = {"relu": x.relu(), "relu6": x.clamp(0, 6), "square": x**2, "gelu": nn.functional.gelu(x)}
    assert torch.equal(activation(name, 3)(x), expected[name])


def settle_(model: nn.Module, x: Tensor) -> None:
    """Batch norms and AESPA measure `x`. Before plain squares batch norms then answer 0.5 +- 0.1: 34 squares of larger
    numbers in a row leave the range of floats."""
    plain = any(isinstance(module, Square) for module in model.modules())
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d | Aespa2d):
            module.momentum = 1.0
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, *((0.05, 0.15) if plain else (0.8, 1.2)))
            nn.init.uniform_(module.bias, *((0.4, 0.6) if plain else (-0.2, 0.2)))
    with torch.no_grad():
        model.train()(x)


FUSED = [(name, "square") for name in sorted(SMALL) if "vit" not in name]
FUSED += [(name, "aespa") for name in sorted(SMALL) if "mobilenet" in name]
FUSED = [(*each, 8) for each in FUSED] + [
    pytest.param(*each, 1, marks=[] if each[0] == "resnet18_tiny" else pytest.mark.slow) for each in FUSED
]
"""Network, activation, block size: dense ones are fused as circulant ones are."""


@pytest.mark.parametrize(("name", "activation_name", "b"), FUSED)
def test_fused_equals_unfused(name, activation_name, b):
    model = small(name, activation=activation_name)
    searched = network_shapes(REFERENCE[name])
    circulant_(model, dict.fromkeys(searched, b))
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    terms = max(module.weight[0].numel() for module in convolutions)
    size = SMALL[name]["image_size"]
    x = torch.rand(4, 3, size, size)
    settle_(model, x)
    model, x = model.double().eval(), x.double()
    fused = fuse(model)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in fused.modules())
    assert all(is_circulant(fused.get_submodule(key).weight, b) for key in searched)
    with torch.no_grad():
        expected = model(x)
        assert expected.std(0).min() > 1e-6
        bound = tolerances.network(torch.float64, len(convolutions), terms, expected.abs().max().item())
        assert_close(fused(x), expected, rtol=0, atol=bound)
