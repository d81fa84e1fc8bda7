"""Mixed precision: a measurement of its gain on this machine, without the convolutions whose bfloat16 kernel is slow.

oneDNN has no fast gradient in bfloat16 for the input of a depthwise convolution with a stride over 1: on a processor
with AVX512-BF16 it takes 115 ms where float32 takes 3 (144 channels, 32 x 32, batch 128), more than everything else in
MobileNetV2's step together. Such convolutions compute in float32 while a run with mixed precision trains.
"""

import copy
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, autocast, nn

from privcirnet.nn.materialize import with_plain_weights
from privcirnet.train.callbacks import Callback

_STEPS = 3
"""Number of steps of each kind that are measured."""


def is_faster(model: nn.Module, loss: Callable[[nn.Module, bool], Tensor]) -> bool:
    """Return whether steps in mixed precision are faster here; measured on a copy, by the fastest of three steps.

    Args:
        model: network in training; left as it was, and so is torch's random state.
    """
    seconds: dict[bool, float] = {}
    device = next(model.parameters()).device
    with torch.random.fork_rng():
        for mixed in (False, True):
            tried = copy.deepcopy(with_plain_weights(model))  # others cannot be copied once they were used
            slow = SlowConvolutions(tried) if mixed else None
            times: list[float] = []
            for _ in range(1 + _STEPS):  # the first one also prepares kernels
                started = time.perf_counter()
                loss(tried, mixed).backward()
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
                times.append(time.perf_counter() - started)
            seconds[mixed] = min(times[1:])
            if slow:
                slow.detach()
    return seconds[True] < seconds[False]


class SlowConvolutions(Callback):
    """The convolutions of a network that compute in float32 under automatic mixed precision; none but on a CPU.

    Args:
        model: network, changed in place until :meth:`detach`; results outside of mixed precision are the same.
    """

    def __init__(self, model: nn.Module) -> None:
        all_convolutions = (module for module in model.modules() if isinstance(module, nn.Conv2d))
        convolutions = (module for module in all_convolutions if module.weight.device.type == "cpu")
        self._modules = [module for module in convolutions if module.groups > 1 and max(module.stride) > 1]
        for module in self._modules:
            # An instance attribute hides the class's method; nothing else of a Conv2d runs inside autocast.
            module.__dict__["_conv_forward"] = partial(_in_float32, module)

    def detach(self) -> None:
        """Give the convolutions their own method back."""
        for module in self._modules:
            module.__dict__.pop("_conv_forward", None)


def _in_float32(module: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    with autocast(x.device.type, enabled=False):
        return nn.Conv2d._conv_forward(module, x.to(weight.dtype), weight, bias)
