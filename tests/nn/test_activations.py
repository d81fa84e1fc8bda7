import torch

from privcirnet.nn.activations import Square


def test_square():
    x = torch.tensor([-3.0, 0.0, 0.5], requires_grad=True)
    y = Square()(x)
    y.sum().backward()
    assert y.tolist() == [9.0, 0.0, 0.25]
    assert x.grad.tolist() == [-6.0, 0.0, 1.0]
