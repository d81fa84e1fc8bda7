"""Old activations, norms and attention fade out while what replaces them fades in, so that a network is never far off.

In training each replaced module returns::

    (1 - share) old(x) + share new(x)        share: from 0 at the first step to 1 after some, linearly

A network of softmax, layer norms and GELU whose operations are replaced at once is as bad as a random one, and learns
as slowly. Faded, it starts as good as it was. In evaluation the network is what it will be: its accuracy in the first
epochs is that of the new operations alone.

Source: after the gradual replacement of non-linear functions in the literature on polynomial networks; here all of them
fade together.
"""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle


def replaced(old: nn.Module, new: nn.Module) -> dict[str, nn.Module]:
    """Return the modules of a network that another has something else for, frozen and in evaluation mode.

    Args:
        old: a network, whose replaced modules are changed by that.
        new: the other, with the same layers.

    Returns:
        Old modules by name; of those that are part of one another the outermost.
    """
    found = dict[str, nn.Module]()
    others = dict(new.named_modules())
    for name, module in old.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer in found)
        layer = isinstance(module, nn.Linear | nn.Conv2d)  # each circulant one has a class of its own
        if name and not inside and not layer and name in others and type(others[name]) is not type(module):
            found[name] = module.eval().requires_grad_(False)
    return found


class Fading:
    """Hooks that blend in a network's old modules while it trains.

    Args:
        model: with the new modules.
        old: by the names of the new ones.
        steps: until only the new ones are left.
    """

    def __init__(self, model: nn.Module, old: Mapping[str, nn.Module], steps: float) -> None:
        device = next(model.parameters()).device
        self._steps, self._share = steps, 0.0
        self._handles: list[RemovableHandle] = [
            model.get_submodule(name).register_forward_hook(partial(self._blend, module.to(device)))
            for name, module in old.items()
        ]

    def at(self, step: int) -> None:
        """Set the shares of a step.

        Args:
            step: number of steps before it.
        """
        self._share = min(1.0, step / self._steps)
        if self._share == 1:
            self.detach()

    def detach(self) -> None:
        """Leave the new modules alone."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _blend(self, old: nn.Module, new: nn.Module, inputs: tuple[Tensor, ...], result: Tensor) -> Tensor:
        return torch.lerp(old(*inputs).to(result.dtype), result, self._share) if new.training else result
