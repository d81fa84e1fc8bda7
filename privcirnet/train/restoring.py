"""Rollback of a network if its training fails."""

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def rollback_on_failure(model: nn.Module) -> Generator[None]:
    """Give the network its weights, buffers, gradients and modes back if an exception ends the block.

    An interruption (Ctrl-C) is none: the network keeps its progress so far.

    Cost: a copy of its tensors.

    Yields:
        Nothing.
    """
    tensors = [(tensor, tensor.detach().clone()) for tensor in (*model.parameters(), *model.buffers())]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    except Exception:
        with torch.no_grad():
            for tensor, before in tensors:
                tensor.copy_(before)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for module, training in modes:
            module.training = training
        raise
