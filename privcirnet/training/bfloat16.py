"""Mixed precision on CPUs without the convolutions whose bfloat16 kernel is slow.

oneDNN has no fast gradient in bfloat16 for the input of a depthwise convolution with a stride over 1: on a processor
with AVX512-BF16 it takes 115 ms where float32 takes 3 (144 channels, 32 x 32, batch 128), more than everything else in
MobileNetV2's step together. Such convolutions compute in float32 while a run with mixed precision trains.
"""

from functools import partial

from torch import Tensor, autocast, nn


class SlowConvolutions:
    """The convolutions of a network on a CPU that compute in float32 under automatic mixed precision.

    Args:
        model: changed in place until :meth:`restore`; results outside of mixed precision are the same.
    """

    def __init__(self, model: nn.Module) -> None:
        convolutions = (module for module in model.modules() if isinstance(module, nn.Conv2d))
        self._modules = [module for module in convolutions if module.groups > 1 and max(module.stride) > 1]
        for module in self._modules:
            # An instance attribute hides the class's method; nothing else of a Conv2d runs inside autocast.
            module.__dict__["_conv_forward"] = partial(_in_float32, module)

    def restore(self) -> None:
        """Give the convolutions their own method back."""
        for module in self._modules:
            module.__dict__.pop("_conv_forward", None)


def _in_float32(module: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    with autocast(x.device.type, enabled=False):
        return nn.Conv2d._conv_forward(module, x.to(weight.dtype), weight, bias)
