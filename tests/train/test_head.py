"""A new last layer begins as logistic regression on the features before it."""

import torch
from torch import nn

from privcirnet.data.dataset import OwnImages
from privcirnet.nn.checks import logits_of_one
from privcirnet.train.head import fit_head_, logistic_regression


def clusters(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows around one of three points."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    return 3 * torch.eye(3, 8)[labels] + torch.randn(count, 8, generator=generator), labels


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))


def test_no_other_weights_have_a_smaller_loss():
    features, labels = clusters(300, 0)
    features = 100 * features + 5
    weight, bias = logistic_regression(features, labels, 3)
    deviation = features.std()

    def loss(weight: torch.Tensor, bias: torch.Tensor) -> float:
        decay = 0.05 * (deviation * weight).square().sum()
        return float(nn.functional.cross_entropy(features @ weight.T + bias, labels) + decay)

    least, generator = loss(weight, bias), torch.Generator().manual_seed(1)
    for _ in range(20):
        step = 1e-2 * torch.randn(weight.shape, generator=generator) / deviation
        assert loss(weight + step, bias) > least
        assert loss(weight, bias + 1e-1 * torch.randn(3, generator=generator)) > least
    assert logistic_regression(features, nn.functional.one_hot(labels, 3).float(), 3)[0].allclose(weight, atol=1e-4)


def test_only_a_new_last_layer_is_fitted():
    """In evaluation mode, whatever mode the network is in, and the layers before stay."""
    model, (images, labels) = network().train(), clusters(300, 0)
    data = OwnImages((images, labels), None, lambda image: logits_of_one(model, image))
    before, fresh = {name: value.clone() for name, value in model.state_dict().items()}, ("3.weight", "3.bias")
    for others in ((), ("0.weight",), (*fresh, "0.weight"), ("2.weight", "9.bias"), ("9.weight",)):
        assert not fit_head_(model, others, data)
    assert fit_head_(model, fresh, data)
    assert model.training
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == set(fresh)
    images, labels = clusters(300, 1)
    assert (model.eval()(images).argmax(1) == labels).float().mean() > 0.9
