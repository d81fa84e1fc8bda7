"""A network as it is becomes a program by one verb, and says what it lost."""

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import privcirnet as pc
from tests.api.samples import convolutional, images_and_labels

IMAGES, LABELS = images_and_labels()
OPTIONS = {"profile": "counted", "progress": False}


class Functions(nn.Module):
    """As torchvision's networks: a ReLU that runs twice, functions, a mean in place of a pool."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.relu, self.last = nn.Conv2d(8, 8, 1), nn.ReLU(), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.norm(self.first(x)))
        return self.last(F.gelu(self.relu(self.second(x)) + x).mean((2, 3)))


class Branching(Functions):
    """Its forward depends on the size of the images."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.pad(x, (0, 1, 0, 1)) if x.shape[-1] % 2 else x)


NETWORKS = {"modules": convolutional, "functions": Functions, "branching": Branching}


@pytest.mark.parametrize("build", NETWORKS.values(), ids=NETWORKS)
def test_a_network_as_it_is_becomes_a_program(build):
    """It stays as it was; the steps one by one give the same program."""
    torch.manual_seed(0)
    model = build().eval()
    before = copy.deepcopy(model.state_dict())
    program = pc.compile(model, IMAGES, rehearsed_images=0, **OPTIONS)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert "8 bits: 64 of the first 64 images keep their class, logits" in str(program)
    quantized = pc.quantize(model, IMAGES)
    with torch.no_grad():
        found = program(IMAGES[:4], engine="cleartext", check=True)
        assert torch.equal(found, quantized(IMAGES[:4]))
        assert torch.allclose(found, model(IMAGES[:4]), atol=0.1)
    if build is not Branching:
        assert torch.equal(pc.quantize(pc.fuse(model), IMAGES)(IMAGES), quantized(IMAGES))


@pytest.mark.parametrize("build", NETWORKS.values(), ids=NETWORKS)
def test_a_plain_network_is_searched_and_becomes_circulant(build):
    model = build().eval()
    plan = pc.search(model, (IMAGES, LABELS), budget=pc.uniform(4), samples=16, **OPTIONS)
    layers = {name for name, module in model.named_modules() if isinstance(module, nn.Conv2d | nn.Linear)}
    assert set(plan.block_sizes) == layers
    pc.circulant_(model, plan.block_sizes | {name: 4 for name in layers & {"4", "second"}})
    program = pc.compile(model, IMAGES, profile=plan.profile, progress=False, rehearsed_images=0)
    with torch.no_grad():
        found = program(IMAGES[:4], engine="cleartext", check=True)
        assert torch.allclose(found, model(IMAGES[:4]), atol=0.1)


def test_a_search_over_activations_names_those_of_functions():
    """The plain network gets what was chosen under these names."""
    model = Functions().eval()
    plan = pc.search(model, (IMAGES, LABELS), activations=["identity"], samples=16, **OPTIONS)
    assert set(plan.activations) == {"relu", "relu_1", "gelu"}
    pc.polynomial_(model, IMAGES[:2], dict.fromkeys(plan.activations, "own") | {"relu_1": "identity"})
    kinds = [type(module).__name__ for module in model.modules()]
    assert (kinds.count("ReLU"), kinds.count("GELU")) == (1, 1)


def test_a_search_prices_convolutions_that_are_not_square():
    layers = nn.Conv2d(3, 8, (3, 5), padding=(1, 2)), nn.ReLU(), nn.Flatten(), nn.Linear(512, 2)
    model = nn.Sequential(*layers).eval()
    plan = pc.search(model, (IMAGES, LABELS), samples=16, **OPTIONS)
    assert set(plan.block_sizes) == {"0", "3"}
    assert layers[0].kernel_size == (3, 5)


def test_what_a_verb_loses_is_said():
    model = convolutional()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pc.quantize(model.eval(), IMAGES)
    for verb in (
        lambda: pc.quantize(model, IMAGES, weight_bits=1),
        lambda: pc.polynomial_(copy.deepcopy(model), IMAGES),
    ):
        with pytest.warns(
            UserWarning, match=r"\d+ of the first 64 images keep their class, logits \d+\.\d% off; .*train it"
        ):
            verb()


def test_progress_says_how_near_the_quantized_network_is(capsys):
    pc.compile(convolutional().eval(), IMAGES, profile="counted", rehearsed_images=0)
    said = capsys.readouterr().out
    assert "folding norms, quantizing" in said
    assert "8 bits: 64 of the first 64 images keep their class" in said


@pytest.mark.parametrize("last", [nn.Softmax(1), nn.Softsign()], ids=str)
def test_what_has_no_exact_form_is_named_with_its_remedy(last):
    with pytest.raises(pc.RuleError, match=r"every operation must have an exact form: got 10 .*; (use|replace)"):
        pc.compile(nn.Sequential(*convolutional(), last).eval(), IMAGES, **OPTIONS)


def test_a_budget_of_zero_is_the_default_as_in_the_script():
    """0 stands for none, there and here; less is refused by one rule."""
    model = convolutional().eval()
    found, usual = (
        pc.search(model, (IMAGES, LABELS), budget=budget, samples=16, **OPTIONS) for budget in (0, pc.uniform(4))
    )
    assert found.budget == usual.budget
    with pytest.raises(pc.RuleError, match="budget must be at least 0: got -1"):
        pc.search(model, (IMAGES, LABELS), budget=-1, **OPTIONS)


def test_the_usual_name_of_a_setting_leads_to_ours():
    with pytest.raises(
        pc.RuleError, match=r"a setting of fit must be a known one: got lr; did you mean learning_rate=\?"
    ):
        pc.fit(convolutional(), (IMAGES, LABELS), lr=0.1)
