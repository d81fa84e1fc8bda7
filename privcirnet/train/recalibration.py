"""Statistics of norms, measured again with the weights that a network has now, and so that no image explodes.

A projection shrinks a layer's outputs: with the dense network's statistics a circulant one would be as bad as a random
one, however near its weights are. And a running average of the weights is a network that never ran: the average of the
statistics that others left is not its own. While the learning rate is high the difference costs accuracy, in AESPA
networks most: MobileNetV2 in the seventh of twelve epochs has 82.4 % on CIFAR-10 with averaged statistics, 88.1 with
its own.

A row of squares amplifies the error of statistics, and the values of an image far from the usual most: they dominate
the variance of a batch, which holds them in training, and double their relative error in each square. So values become
infinite after a training of two steps, of which running averages have a fifth; and so does the rounding of float32
after thirty squares, whatever the statistics are averages of. Measured on the image that varies most, no measured image
is far from the usual in any layer (:func:`fit_widest_`). MobileNetV2 with AESPA after 200 steps of 64 images: of 1,000
held-out images of CIFAR-10 20.6 % are right and 97.3 % finite, 18.0 and 94.7 % with running averages.

Images that were not measured need headroom: deviations k times the widest image's. Squares are then nearly linear, and
a relative error does not double in each. k is the smallest with which statistics of either half of the images hold
for the other. After two steps on 32 random images, of 64 others 5 to 34 % are finite with k = 1 in rexnet_100,
mixnet_s, semnasnet_075 and regnet_y_400mf, all with the k of 3 or 4 that is found. Noise of 1e-3 in an image is 4 % of
mixnet_s's logits, and 0.5 % with k = 3. Where nothing explodes, as in resnet10t, k is 1. After the 200 steps above k is
2: all of the 1,000 are finite, but 17.7 % are right. It costs two passes over some images for each k, half of them at
once, and one or two passes to see which explode.

A network without squares needs none of this. Where its running statistics are of few steps, they become means over
batches: with the widest image's, MobileNetV2 with ReLU6 is at chance after 40 steps.

Torch's update_bn has all modules in training while it measures, so that dropout drops, weighs a small last batch as a
whole one, and leaves in AESPA's averages what was there before.
"""

import copy
import functools
import warnings
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from privcirnet import distributed
from privcirnet.data.dataset import Examples
from privcirnet.nn.activations import Aespa, Aespa1d, Square
from privcirnet.nn.example import layout_of
from privcirnet.nn.graph import evaluating
from privcirnet.nn.norm import TokenBatchNorm

REMEDY = "train it longer, or with outlier_penalty=0.1"
_BATCH = 64


@dataclass(frozen=True)
class ExplosionCheck:
    """Predictions of a network in evaluation mode on training images.

    Attributes:
        exploding: number of images with logits that are not finite.
        layer: name of the first layer whose values are not; "" if all are.
    """

    images: int
    right: int
    exploding: int
    layer: str

    def __str__(self) -> str:
        """Return the number of exploding images and their layer in words."""
        place = f", from {self.layer} on" if self.layer else ""
        return f"NaN or infinity for {self.exploding} of {self.images} training images{place}"


@torch.no_grad()
def evaluated(model: nn.Module, data: Examples, count: int) -> ExplosionCheck:
    """Return a check of a network's predictions on training images.

    Args:
        model: network on any device; left in the mode it was in.
        count: largest number of images.
    """
    device, total, right, exploding, layer = next(model.parameters()).device, 0, 0, 0, ""
    with evaluating(model):
        for images, labels in data.sampled(count, _BATCH):
            logits, classes = model(images.to(device)), labels.argmax(1) if labels.ndim == 2 else labels
            finite = logits.isfinite().all(1)
            total += len(images)
            right += int((finite & (logits.argmax(1) == classes.to(device))).sum())
            exploding += int((~finite).sum())
            if exploding and not layer:
                layer = _first_exploding(model, images[~finite.to(images.device)][:1].to(device))
    return ExplosionCheck(total, right, exploding, layer)


def _first_exploding(model: nn.Module, images: Tensor) -> str:
    """Return the name of the first layer whose values on some images are not finite; "" if it is in none."""
    exploding: list[str] = []

    def see(name: str, values: object) -> None:
        if isinstance(values, Tensor) and not values.isfinite().all():
            exploding.append(name)

    layers = [(name, module) for name, module in model.named_modules() if not any(module.children())]
    handles = [m.register_forward_hook(lambda _, _i, values, name=name: see(name, values)) for name, m in layers]
    try:
        model(images)
    finally:
        for handle in handles:
            handle.remove()
    return next(iter(exploding), "")


IMAGES, BATCH = 4096, 128
"""Number of training images that are measured, and of images at once if a recipe does not say."""


@torch.no_grad()
def recalibrate_(
    model: nn.Module,
    data: Examples,
    batch_size: int = BATCH,
    *,
    shared: bool = False,
    frozen: Collection[str] = (),
) -> None:
    """Set every norm's running statistics to their means over some batches of training images, which are not augmented.

    Args:
        model: network on any device; left in evaluation mode. One without running statistics stays as it is.
        shared: whether each process that torchrun started takes its share of a batch; all of them must call this, and
            the model's norms must be those of :func:`privcirnet.distributed.prepare_`.
        frozen: names of norms that keep theirs.
    """
    model.eval()
    if not (norms := norms_of(model, frozen)):
        return
    device, momenta = next(model.parameters()).device, [norm.momentum for norm in norms]
    for norm in norms:
        norm.train()  # and nothing else: no layer that drops anything
    total = 0
    for images, _ in data.sampled(IMAGES, batch_size):
        total += len(images)
        for norm in norms:
            norm.momentum = len(images) / total
        seen_here = distributed.share(images) if shared else images
        model(seen_here.to(device, memory_format=layout_of(seen_here)))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.eval()


def norms_of(model: nn.Module, frozen: Collection[str] = ()) -> list[Any]:
    """Return the modules of a network that have running statistics, but for some by name."""
    norms = [norm for name, norm in _norms(model).items() if name not in frozen]
    return [norm for norm in norms if getattr(norm, "running_var", None) is not None]


def _norms(model: nn.Module) -> dict[str, Any]:
    return {name: module for name, module in model.named_modules() if isinstance(module, (_BatchNorm, Aespa))}


def frozen_norms(model: nn.Module) -> frozenset[str]:
    """Return the names of norms that training leaves alone: in evaluation mode, and no parameter needs a gradient.

    >>> frozen_norms(nn.Sequential(nn.BatchNorm2d(2).eval(), nn.BatchNorm2d(2).eval().requires_grad_(False)))
    frozenset({'1'})
    """
    of = {name: list(norm.parameters(recurse=False)) for name, norm in _norms(model).items() if not norm.training}
    return frozenset(
        name for name, values in of.items() if values and not any(parameter.requires_grad for parameter in values)
    )


def are_norms_frozen(model: nn.Module) -> bool:
    """Return whether a network has norms, and training leaves all of them alone.

    >>> are_norms_frozen(nn.Sequential(nn.BatchNorm2d(2), nn.BatchNorm2d(2).eval().requires_grad_(False)))
    False
    """
    return 0 < len(_norms(model)) == len(frozen_norms(model))


def freeze_norms_(model: nn.Module) -> None:
    """Make training leave all norms alone, as :func:`frozen_norms` says.

    Statistics of other images may fit better than those of a batch. Of 250 pictures of 10 animals EfficientNet-Lite0
    has 77.6 % right with ImageNet's statistics and a last layer that is fitted to 1,000 others, 60.0 % with the
    statistics of these; two epochs make it 78.0 and 62.4 %.
    """
    for norm in _norms(model).values():
        norm.eval().requires_grad_(False)


_IMAGES = 512
"""Largest number of training images that a trained network is tried and measured on."""
_BATCHES = 8
"""Largest number of batches measured together: fewer maps than training holds of one batch, in deep networks."""
_HEADROOM = (1.0, 1.5, 2.0, 3.0, 4.0)
"""Multiples of the deviations of the image that varies most, of which the first that holds is taken, or the last."""
_FAR = 10.0
"""Largest ratio of an image's logits to those of measured ones for which statistics hold."""
_GAUSSIAN = 2 / 3
"""Variance of a normal value's square, 2, as a share of its fourth moment, 3."""
_STALE = 0.01
"""Share of the initial values from which on running statistics are measured anew."""


def stabilize_statistics_(
    model: nn.Module, data: Examples, batch_size: int, steps: int, frozen: Collection[str] = ()
) -> None:
    """Give a trained network statistics for evaluation, and warn if it explodes nevertheless.

    Running statistics of few steps are near their initial values, and are measured anew: by :func:`fit_widest_` in a
    network of squares, else as means over batches. Where images explode with others, :func:`fit_widest_` measures them
    without headroom, which costs a well trained network more than it mends. They stay as they were if
    fewer images are right then. Under torchrun all processes must call this.

    Args:
        steps: number of training steps.
        frozen: names of norms that keep their statistics.

    Warns:
        UserWarning: some training images have logits that are not finite; names the first layer that explodes.
    """

    def tried() -> ExplosionCheck:
        return distributed.from_first(lambda: evaluated(model, data, _IMAGES))

    stale = _is_stale(norms_of(model, frozen), steps)
    squares = any(isinstance(module, Square | Aespa) for module in model.modules())
    if stale and not squares:
        recalibrate_(model, data, min(batch_size, BATCH), shared=True, frozen=frozen)
    check = None if stale and squares else tried()
    if check is None or check.exploding:
        before = copy.deepcopy(model.state_dict())
        fit_widest_(model, _some_images(model, data, min(batch_size, BATCH)), 1.0 if check else None, frozen)
        again = tried()
        if check and again.right < check.right:
            model.load_state_dict(before)
        else:
            check = again
    if check.exploding and distributed.rank() == 0:
        warnings.warn(f"a trained network must have finite logits: got {check}; {REMEDY}", stacklevel=2)


@torch.no_grad()
def fit_widest_(model: nn.Module, images: Tensor, headroom: float | None = None, frozen: Collection[str] = ()) -> None:
    """Set every norm's deviations to multiples of the widest image's, its means to those of all images.

    The images run once, and each layer measures its inputs in evaluation. Then none of them is far from the usual
    in any layer. One that was would double its relative error in each square: in thirty, that of float32 becomes 100 %.

    Args:
        images: real, (N, C, H, W), on the same device.
        headroom: multiple; None: the smallest with which statistics of each half of the images hold for the other.
        frozen: names of norms that keep their statistics.
    """
    model.eval()
    if headroom is None:
        headroom = next((k for k in _HEADROOM if _holds(model, images, k, frozen)), _HEADROOM[-1])
    _measure(model, images, headroom, frozen)


def _holds(model: nn.Module, images: Tensor, headroom: float, frozen: Collection[str]) -> bool:
    """Return whether statistics of each half of the images hold for the other; a single image has none."""
    halves = images.split([len(images) // 2, (len(images) + 1) // 2])
    for measured, unmeasured in (halves, halves[::-1]) if len(halves[0]) else ():
        usual = _measure(model, measured, headroom, frozen).abs().max()
        if not (model(unmeasured).abs() <= _FAR * usual).all():
            return False
    return True


def _measure(model: nn.Module, images: Tensor, headroom: float, frozen: Collection[str]) -> Tensor:
    """Measure the norms' statistics, layer by layer, and return the logits that they lead to."""
    measure = functools.partial(_measure_widest, headroom=headroom)
    handles = [norm.register_forward_pre_hook(measure) for norm in norms_of(model, frozen)]
    try:
        return model(images)
    finally:
        for handle in handles:
            handle.remove()


def _is_stale(norms: list[Any], steps: int) -> bool:
    """Return whether running statistics are in good part those before so many steps."""
    momenta = [norm.momentum for norm in norms]
    return any(momentum is not None and (1 - momentum) ** steps > _STALE for momentum in momenta)


def _some_images(model: nn.Module, data: Examples, size: int) -> Tensor:
    """Return some training images on the network's device, of one size as the first of a loader that has several."""
    parts = [images for images, _ in data.sampled(min(_IMAGES, _BATCHES * size), size)]
    images = torch.cat([part for part in parts if part.shape[1:] == parts[0].shape[1:]])
    return images.to(next(model.parameters()).device, memory_format=layout_of(images))


def _measure_widest(norm: Any, inputs: tuple[Tensor, ...], headroom: float) -> None:
    channels_last = isinstance(norm, Aespa1d | TokenBatchNorm)
    x = inputs[0].movedim(-1 if channels_last else 1, 1)
    x = x.reshape(len(x), len(norm.running_var), -1)
    if isinstance(norm, Aespa):  # around 0: a mean that a residual adds would grow from square to square
        norm.running_var.copy_(headroom**2 * _widest(x))
        norm.running_square_var.copy_(headroom**4 * _GAUSSIAN * _widest(x.square()))
    else:
        norm.running_mean.copy_(x.mean((0, 2)))
        norm.running_var.copy_(headroom**2 * _widest(x - x.mean((0, 2), keepdim=True)))


def _widest(x: Tensor) -> Tensor:
    """Return the largest mean square of an image's values: (blocks of channels,).

    Args:
        x: (N, blocks of channels, values).
    """
    return x.square().mean(2).amax(0)
