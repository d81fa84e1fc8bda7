"""Strided depthwise convolutions leave mixed precision while a run trains, and nothing else does."""

import copy

import torch
from torch import nn
from torch.testing import assert_close

from privcirnet.train import callbacks
from privcirnet.train.callbacks import SlowConvolutions

STRIDED = nn.Sequential(nn.Conv2d(4, 4, 3, 2, 1, groups=4), nn.Conv2d(4, 8, 3, 1, 1, groups=4), nn.Conv2d(8, 2, 1, 2))


def types(model, x):
    found = []
    hooks = [m.register_forward_hook(lambda m, inputs, output: found.append(output.dtype)) for m in model]
    with torch.autocast("cpu", torch.bfloat16):
        model(x)
    for hook in hooks:
        hook.remove()
    return found


def test_only_strided_depthwise_convolutions_stay_in_float32():
    model, x = copy.deepcopy(STRIDED), torch.randn(2, 4, 8, 8)
    before, names = types(model, x), list(model.state_dict())
    expected = model(x)
    slow = SlowConvolutions(model)
    assert types(model, x) == [torch.float32, torch.bfloat16, torch.bfloat16]
    assert_close(model(x), expected, rtol=0, atol=0)
    assert list(model.state_dict()) == names
    slow.detach()
    assert types(model, x) == before == [torch.bfloat16] * 3


def test_a_copy_keeps_its_own_weights():
    model = copy.deepcopy(STRIDED)
    slow = SlowConvolutions(model)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[0].weight.zero_()
    x = torch.randn(2, 4, 8, 8)
    assert_close(other[0](x), torch.zeros(2, 4, 4, 4) + other[0].bias[:, None, None])
    slow.detach()


def test_the_faster_precision_is_found_and_nothing_is_changed(monkeypatch):
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.Flatten(), nn.Linear(144, 2)).train()
    x, clock, seen = torch.randn(2, 4, 8, 8), [0.0], []
    before = copy.deepcopy(model.state_dict())
    monkeypatch.setattr(callbacks.time, "perf_counter", lambda: clock[0])

    def loss(slower):
        def of(tried, mixed):
            seen.append(mixed)
            clock[0] += 2.0 if mixed == slower else 1.0
            return tried(x).sum()

        return of

    state = torch.get_rng_state()
    assert callbacks.is_faster(model, loss(slower=False))
    assert not callbacks.is_faster(model, loss(slower=True))
    assert seen == ([False] * 4 + [True] * 4) * 2
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
