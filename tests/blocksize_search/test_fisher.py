import copy

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

from privcirnet.blocksize_search import curvature as fisher_module
from privcirnet.blocksize_search.curvature import diagonal_fisher, squared_batch_gradient
from privcirnet.errors import RuleError
from privcirnet.nn.activations import Aespa2d
from privcirnet.passes.convert import circulant_
from tests import tolerances

NAMES = ("conv", "fc")


class Attention(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(2).mT.unsqueeze(1).contiguous()  # (batch, head, token, channel)
        return nn.functional.scaled_dot_product_attention(x, x, x).mean((1, 2))


class Small(nn.Module):
    """Everything that could go wrong in training mode: a batch norm, a dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)
        self.attention, self.fc, self.unused = Attention(), nn.Linear(4, 3), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.attention(self.drop(torch.relu(self.norm(self.conv(x))))))


def small(dtype: torch.dtype = torch.float64) -> Small:
    torch.manual_seed(0)
    model = Small().to(dtype)
    model.norm.running_mean.uniform_(-1, 1)
    model.norm.running_var.uniform_(0.5, 2)
    return model


def loader(samples: int = 11, batch: int = 4, dtype: torch.dtype = torch.float64) -> DataLoader:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(samples, 2, 6, 6, generator=generator, dtype=dtype)
    return DataLoader(TensorDataset(images, torch.arange(samples) % 3), batch)


def slow_fisher(model: nn.Module, batches: DataLoader, names: tuple[str, ...], samples: int) -> dict[str, Tensor]:
    """One backward pass for each sample."""
    model = copy.deepcopy(model).eval()
    total = {name: torch.zeros_like(model.get_submodule(name).weight) for name in names}
    for image, label in list(batches.dataset)[:samples]:
        model.zero_grad()
        nn.functional.cross_entropy(model(image[None]), label[None]).backward()
        for name in names:
            total[name] += model.get_submodule(name).weight.grad ** 2
    return {name: value / samples for name, value in total.items()}


@pytest.mark.parametrize(
    ("batch", "max_samples", "chunk"), [(4, 512, 32), (4, 6, 32), (11, 7, 3), (1, 11, 1), (5, 5, 2)]
)
def test_is_the_mean_of_squared_per_sample_gradients(batch, max_samples, chunk):
    model, batches = small(), loader(batch=batch)
    fisher = diagonal_fisher(model, batches, NAMES, max_samples, chunk)
    expected = slow_fisher(model, batches, NAMES, min(max_samples, 11))
    assert fisher.keys() == set(NAMES)
    for name, value in fisher.items():
        assert value.max() > 0
        bound = tolerances.network(torch.float64, 5, 100, value.max().item(), growth=100)
        assert_close(value, expected[name], rtol=0, atol=bound)


def test_is_not_the_square_of_the_summed_gradient():
    """Two samples of opposite gradients: their sum is zero, the Fisher is not."""
    model = nn.Linear(1, 2, bias=False)
    nn.init.zeros_(model.weight)
    batches = [(torch.ones(2, 1), torch.tensor([0, 1]))]
    assert diagonal_fisher(model, batches, [""])[""].tolist() == [[0.25], [0.25]]


def test_measuring_changes_nothing():
    model = small(torch.float32).train()
    model.norm.eval()
    model.fc.weight.grad = torch.ones(3, 4)
    batches = list(loader(dtype=torch.float32))
    state = copy.deepcopy(model.state_dict())
    modes = [module.training for module in model.modules()]
    seed = torch.get_rng_state()
    fisher = diagonal_fisher(model, batches, NAMES)
    assert fisher["fc"].dtype == torch.float64
    assert not any(value.requires_grad for value in fisher.values())
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert torch.equal(model.fc.weight.grad, torch.ones(3, 4))
    assert model.conv.weight.grad is None
    assert torch.equal(torch.get_rng_state(), seed)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_modes_come_back_after_a_failure():
    model = small().train()
    with pytest.raises(RuntimeError, match="channels"):
        diagonal_fisher(model, [(torch.ones(1, 3, 6, 6).double(), torch.zeros(1).long())], NAMES)
    assert all(module.training for module in model.modules())


def test_progress_counts_samples():
    done = []
    diagonal_fisher(small(), loader(), NAMES, max_samples=10, chunk=3, progress=done.append)
    assert done == [3, 4, 7, 8, 10]


def test_stops_reading_once_it_has_enough():
    def endless():
        while True:
            yield torch.ones(4, 2, 6, 6).double(), torch.zeros(4).long()

    assert diagonal_fisher(small(), endless(), NAMES, max_samples=8)["fc"].shape == (3, 4)


def test_soft_labels():
    images, labels = next(iter(loader()))
    soft = nn.functional.one_hot(labels, 3).double()
    hard = diagonal_fisher(small(), (images, labels), NAMES)["conv"]
    bound = tolerances.network(torch.float64, 5, 100, hard.max().item(), growth=100)
    assert_close(diagonal_fisher(small(), [(images, soft)], NAMES)["conv"], hard, rtol=0, atol=bound)


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["conv", "fcc"], {}, "must exist in the model: got 'fcc'; did you mean 'fc'"),
        (["norm"], {}, "must be Linear, Conv1d or Conv2d: got BatchNorm2d at 'norm'"),
        (["fc"], {"max_samples": 0}, "max_samples must be positive.*: got 0 and 0"),
        (["fc"], {"chunk": -1}, "chunk not negative: got 512 and -1"),
    ],
)
def test_what_cannot_be_measured(names, options, message):
    with pytest.raises(RuleError, match=message):
        diagonal_fisher(small(), loader(), names, **options)


def test_an_empty_loader():
    with pytest.raises(RuleError, match="at least one sample: got none"):
        diagonal_fisher(small(), [], NAMES)


def test_trap_5_it_is_measured_before_conversion():
    model = circulant_(small(), {"conv": 2})
    with pytest.raises(RuleError, match="plain dense weight: got 'conv'"):
        diagonal_fisher(model, loader(), NAMES)


def test_chunks_fit_in_memory(monkeypatch):
    weight = small().fc.weight.nbytes
    for memory, expected in ((2**40, [11]), (9 * weight, [8, 11]), (1, [*range(1, 12)])):
        monkeypatch.setattr(fisher_module, "MEMORY", memory)
        done = []
        diagonal_fisher(small(), loader(batch=11), ("fc",), chunk=0, progress=done.append)
        assert done == expected
    found, wanted = (diagonal_fisher(small(), loader(), NAMES, chunk=chunk) for chunk in (0, 32))
    for name in NAMES:
        assert_close(found[name], wanted[name], rtol=1e-12, atol=0)


def test_the_published_shortcut_squares_gradients_of_batches():
    model, batches = small(), loader(samples=11, batch=4)
    state = copy.deepcopy(model.state_dict())
    found = squared_batch_gradient(model, batches, NAMES)
    expected = {name: torch.zeros_like(model.get_submodule(name).weight) for name in NAMES}
    twin = copy.deepcopy(model).eval()
    for images, labels in batches:
        twin.zero_grad()
        nn.functional.cross_entropy(twin(images), labels).backward()
        for name in NAMES:
            expected[name] += twin.get_submodule(name).weight.grad.detach() ** 2 / 3
    for name in NAMES:
        assert_close(found[name], expected[name], rtol=1e-9, atol=1e-15)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())


def test_aespa_has_gradients_of_each_image_alone():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), Aespa2d(4), nn.Flatten(), nn.Linear(16, 3)).eval()
    pairs = [(torch.randn(5, 3, 4, 4), torch.arange(5) % 3)]
    found = diagonal_fisher(model, pairs, ["0"], chunk=5)["0"]
    expected = torch.zeros_like(found)
    for image, label in zip(*pairs[0], strict=True):
        loss = nn.functional.cross_entropy(model(image[None]), label[None])
        expected += torch.autograd.grad(loss, model[0].weight)[0].double().square() / 5
    assert_close(found, expected, rtol=1e-4, atol=1e-9)
