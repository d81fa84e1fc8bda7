"""A move does what the torch operations that it was made from do, forward and backward."""

import pytest
import torch
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.nn.moves import Rearrange

MOVES = {
    "flatten": (lambda x: x.flatten(1), (8, 3, 4)),
    "places as tokens": (lambda x: x.permute(0, 2, 3, 1), (8, 3, 4)),
    "a token": (lambda x: x[:, 0], (5, 8)),
    "all but one": (lambda x: x[:, 1:], (5, 8)),
    "every other": (lambda x: x[:, ::2, 1::2], (6, 4, 4)),
    "shuffled channels": (lambda x: x.unflatten(1, (2, 4)).transpose(1, 2).flatten(1, 2), (8, 3, 3)),
    "repeated": (lambda x: x.expand(-1, -1, 4, 4), (8, 1, 1)),
    "windows": (lambda x: x.unflatten(2, (2, 2)).unflatten(4, (2, 2)).permute(0, 2, 4, 3, 5, 1).flatten(1, 4), (6, 4, 4)),
    "a third of the channels": (lambda x: x.chunk(3, 2)[1], (5, 9)),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("last", [False, True])
def test_values_and_gradients_are_those_of_the_function(name, last):
    function, before = MOVES[name]
    move, x = Rearrange.like(function, before, last), torch.randn(3, *before, requires_grad=True)
    found, expected = move(x), function(x)
    assert torch.equal(found, expected.flatten(1, -2) if last and expected.ndim > 2 else expected)
    upstream = torch.randn_like(found)
    gradients = [torch.autograd.grad(y, x, upstream.view_as(y))[0] for y in (found, expected)]
    assert_close(*gradients)
    channels_last = x.detach().to(memory_format=torch.channels_last) if x.ndim == 4 else x.detach()
    assert torch.equal(move(channels_last), found)


def test_who_keeps_channels():
    assert Rearrange.like(lambda x: x[:, 0], (5, 8), True).keeps_channels()
    assert Rearrange.like(lambda x: x[:, 1:].flip(1), (5, 8), True).keeps_channels()
    assert not Rearrange.like(lambda x: x.mT, (8, 8), True).keeps_channels()
    assert not Rearrange.like(lambda x: x[..., 4:], (5, 8), True).keeps_channels()
    assert not Rearrange.like(lambda x: x.flip(2), (5, 8), True).keeps_channels()


@pytest.mark.parametrize(
    "function",
    [lambda x: x.roll(1, 1), lambda x: x + 1, lambda x: x.flip(0), lambda x: x.flatten(0, 1), lambda x: 2 * x],
    ids=["roll", "sum", "images exchanged", "images joined", "product"],
)
def test_what_is_no_move_is_refused(function):
    with pytest.raises(RuleError, match=r"values must be moved along a grid, image by image: got \(4, 3\)"):
        Rearrange.like(function, (4, 3), channels_last=True)
