"""Callbacks of the loop: parts that observe a network, add to its loss, and leave nothing behind."""

import copy
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, autocast, nn
from torch.utils.hooks import RemovableHandle

from privcirnet import distributed
from privcirnet.nn.activations import Aespa, Square
from privcirnet.nn.materialize import with_plain_weights


class Callback:
    """A part of a training run; each method does nothing unless a kind of part says otherwise."""

    def epoch(self, number: int) -> AbstractContextManager[object]:
        """Return a context in which an epoch trains."""
        return nullcontext()

    def show(self, images: Tensor) -> None:
        """See the images that the network sees next; ``images``: this process's, real, (N, C, S, S)."""

    def penalty(self) -> Tensor | float:
        """Return the penalty on the images just seen (this process's mean), then forget them."""
        return 0.0

    def beside(self, model: nn.Module) -> AbstractContextManager[object]:
        """Return a context in which the statistics of another network, such as an average of weights, are measured."""
        return nullcontext()

    def detach(self) -> None:
        """Give the network back as it was."""


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

    oneDNN has no fast gradient in bfloat16 for the input of a depthwise convolution with a stride over 1: on a
    processor with AVX512-BF16 it takes 115 ms where float32 takes 3 (144 channels, 32 x 32, batch 128), more than
    everything else in MobileNetV2's step together.

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


LIMIT = 6.0
"""Largest usual value, in root mean squares of the batch: of normal values one in 5e8 is larger."""


class OutlierPenalty(Callback):
    """A penalty that keeps a row of squares from exploding: on images whose values are far above the usual.

    A square amplifies large values. In a deep network an image whose values are a few times the usual in one square can
    be a thousand times it some squares later, and no batch statistics can scale it back in evaluation. So in training
    such images cost::

        penalty = weight x mean over the images of  sum over the squares of  max(0, log(peak / (LIMIT rms)))^2

    peak is the largest absolute input of a square on the image. rms is the root mean square of the square's inputs over
    the batch, taken as a constant. Because of the logarithm, extreme images do not dominate the gradient. The penalty
    also limits the range that eight bits must cover.

    Cost: three passes over the inputs of every square; two backward where an image costs anything, none elsewhere.

    Source: after the activation regularization of PILLAR (Diaa et al., "Fast and Private Inference of Deep Neural
    Networks by Co-designing Activation Functions", USENIX Security 2024), which penalizes what leaves a fixed interval
    by its power.

    Args:
        model: network with AESPA or square activations; others cost nothing.
    """

    def __init__(self, model: nn.Module, weight: float) -> None:
        self._weight = weight
        self._peaks: list[Tensor] = []
        self._squares: list[Tensor] = []
        squares = [module for module in model.modules() if isinstance(module, Square | Aespa)]
        self._handles: list[RemovableHandle] = [module.register_forward_pre_hook(self._see) for module in squares]

    def penalty(self) -> Tensor | float:
        """Return the penalty of the batch just seen (this process's images), then forget it; 0 without squares."""
        if not self._peaks:
            return 0.0
        peaks, squares = torch.stack(self._peaks), torch.stack(self._squares)
        self._peaks, self._squares = [], []
        sums = distributed.total(squares)
        rms = (sums[:, 0] / sums[:, 1]).sqrt().unsqueeze(1)
        over = (peaks / (LIMIT * rms)).clamp_min(1.0).log()
        return self._weight * over.square().sum(0).mean()

    def detach(self) -> None:
        """Stop observing."""
        for handle in self._handles:
            handle.remove()

    def _see(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor | None:
        (x,) = inputs
        if not module.training:
            return None
        output, peaks = (x, _peaks(x)) if torch.compiler.is_compiling() else _Peaks.apply(x)
        self._peaks.append(peaks)
        size = torch.linalg.vector_norm(x.detach(), dtype=torch.promote_types(x.dtype, torch.float32))
        self._squares.append(torch.stack([size.square(), torch.full_like(size, x.numel())]))
        return output


def _peaks(x: Tensor) -> Tensor:
    of_image = tuple(range(1, x.ndim))
    return torch.maximum(x.amax(of_image), -x.amin(of_image))


class _Peaks(torch.autograd.Function):
    """The identity of x and the largest absolute value of each image, (N,).

    One function for both, so that the gradient of a peak is added at its one place to that of x. Torch's own amax would
    make a whole tensor of it.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x)
        return x.view_as(x), _peaks(x)

    @staticmethod
    def backward(ctx: Any, of_x: Tensor, of_peaks: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        (images,) = of_peaks.nonzero(as_tuple=True)
        if not len(images):
            return of_x
        (x,), of_x = ctx.saved_tensors, of_x.clone()
        axes = sorted(range(x.ndim), key=x.stride, reverse=True)  # as they lie in memory
        x, gradient = x.permute(axes), of_x.permute(axes)
        values = x.flatten(1) if len(images) == len(x) else x[images].flatten(1)
        places = values.abs().argmax(1)
        signs = values.gather(1, places.unsqueeze(1)).squeeze(1).sign()
        gradient[(images, *torch.unravel_index(places, x.shape[1:]))] += signs * of_peaks[images]
        return of_x
