"""What a module computes besides its class is not lost: every verb refuses it, or keeps it."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import privcirnet as pc
from privcirnet.errors import RuleError
from privcirnet.nn.example import IMAGE
from privcirnet.passes.fuse import fuse_at

IMAGES = torch.rand(8, 3, 6, 6, generator=torch.Generator().manual_seed(0))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), pc.Square(), nn.Conv2d(4, 4, 3)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 2)).eval()


VERBS = {
    "polynomial_": lambda model: pc.polynomial_(model, IMAGES),
    "fuse": pc.fuse,
    "circulant_": lambda model: pc.circulant_(model, {"3": 2}),
}


def nothing(_: Tensor) -> None:
    """What a hook returns that writes in place."""


def adapter(_: nn.Module, given: tuple[Tensor], result: Tensor) -> Tensor:
    return result + F.conv2d(given[0], torch.ones(4, 4, 3, 3))


CONV, ROOT = r"3 \(Conv2d\)", r"the network itself \(Sequential\)"
HOOKS = {
    "written to a result": (CONV, lambda net: net[3].register_forward_hook(lambda _, x, y: nothing(y.add_(0.5)))),
    "written to an input": (CONV, lambda net: net[3].register_forward_pre_hook(lambda _, x: nothing(x[0].mul_(0.5)))),
    "behind a layer": (CONV, lambda net: net[3].register_forward_hook(lambda _, x, y: y + 0.5)),
    "before a layer": (CONV, lambda net: net[3].register_forward_pre_hook(lambda _, x: (x[0] * 0.5,))),
    "an adapter": (CONV, lambda net: net[3].register_forward_hook(adapter)),
    "with keywords": (
        r"5 \(Linear\)",
        lambda net: net[5].register_forward_hook(lambda _, x, named, y: y / 0.1, with_kwargs=True),
    ),
    "on a square": (r"2 \(Square\)", lambda net: net[2].register_forward_hook(lambda _, x, y: 2 * y)),
    "before the network": (ROOT, lambda net: net.register_forward_pre_hook(lambda _, x: ((x[0] - 0.5) / 0.25,))),
    "behind the network": (ROOT, lambda net: net.register_forward_hook(lambda _, x, y: y * 2)),
}


@pytest.mark.parametrize(("where", "change"), HOOKS.values(), ids=HOOKS)
@pytest.mark.parametrize("verb", VERBS)
def test_hooks_that_change_values_are_refused(where, change, verb):
    model = network()
    change(model)
    rule = f"compute what its class says: got forward hooks that change values at {where}"
    with pytest.raises(RuleError, match=f"{rule}; write .* as a module, or merge .*, and remove the hook$"):
        VERBS[verb](model)


@pytest.mark.parametrize("verb", VERBS)
def test_hooks_that_look_stay(verb):
    model, seen = network(), []
    for module in model.modules():
        module.register_forward_hook(lambda module, given, result: seen.append(result.abs().max().item()))
        module.register_forward_pre_hook(lambda module, given, named: None, with_kwargs=True)
        module.register_forward_hook(lambda module, given, result: result)
    before = [len(module._forward_hooks) for module in model.modules()]
    VERBS[verb](model)
    assert seen
    assert [len(module._forward_hooks) for module in model.modules()][:2] == before[:2]
    model(IMAGES)
    assert all(hook.__name__ == "<lambda>" for module in model.modules() for hook in module._forward_hooks.values())


def test_hooks_that_nothing_could_try_ask_for_images():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 65 * 4, 2))
    model[0].register_forward_hook(lambda module, given, result: None)
    rule = r"forward hooks must leave values as they are: got some at 0 \(Conv2d\), and no images to try them on"
    with pytest.raises(RuleError, match=f"{rule}; .* give quantize"):
        pc.fuse(model)
    fuse_at(model, torch.rand(2, 3, 67, 6))


def test_a_compiled_layer_is_refused_with_what_to_give():
    model = network()
    model[3].compile(backend="eager")
    with pytest.raises(RuleError, match=r"must not be compiled: got 3 \(Conv2d\)"):
        pc.polynomial_(model, IMAGES)
    pc.polynomial_(copy.deepcopy(model), IMAGES)


class Padded(nn.Conv2d):
    """Computes something else than torch's, inside."""

    def _conv_forward(self, input, weight, bias):
        return super()._conv_forward(input, weight, bias) + 0.5


class Shifted(nn.BatchNorm2d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + 0.5


@pytest.mark.parametrize(
    ("place", "name"), [(3, "forward"), (3, "_conv_forward"), (3, "_call_impl"), (None, "forward")]
)
@pytest.mark.parametrize("verb", VERBS)
def test_a_forward_that_was_replaced_is_refused(place, name, verb):
    model = network()
    module = model if place is None else model[place]
    before = getattr(module, name)
    setattr(module, name, lambda *given: before(*given) + 0.5)
    with pytest.raises(RuleError, match=r"compute what its class says: got another forward at (3|the network itself)"):
        VERBS[verb](model)


def through(model: nn.Module) -> object:
    pc.polynomial_(model, IMAGES)
    return pc.compile(pc.quantize(pc.fuse(model), IMAGES), IMAGES, profile="counted", progress=False)


def test_a_subclass_with_its_own_convolution_is_refused():
    model = network()
    model[3] = Padded(4, 4, 3)
    with pytest.raises(RuleError, match=r"must have a polynomial form: got 3 \(Padded\)"):
        through(model)
    for given in (model, pc.fuse(model)):
        with pytest.raises(RuleError, match=r"must have an exact form: got 3 \(Padded\)"):
            pc.quantize(given, IMAGES)
        with pytest.raises(RuleError, match=r"must have an exact form: got 3 \(Padded\)"):
            pc.compile(given, IMAGES, profile="counted", progress=False)


def test_a_batch_norm_that_computes_more_is_refused_by_numbers():
    model = network()
    model[1] = Shifted(4)
    unfolded = pc.fuse(model.eval())
    assert type(unfolded.get_submodule("1")) is Shifted
    for given in (model, unfolded):
        with pytest.raises(RuleError, match="must leave the network's values as they were: got other values from '_1'"):
            fuse_at(given, IMAGES)
    model.meta = {IMAGE: (3, 6, 6)}
    with pytest.raises(RuleError, match="a fused network must compute what the network does"):
        pc.fuse(model)
