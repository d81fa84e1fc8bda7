"""Curvature of the loss: the diagonal Fisher information with its precision, and Kronecker factors for fitted weights.

For a network trained to convergence the information stands in for the diagonal of the Hessian::

    F = mean over the samples of (gradient of that sample's cross-entropy)^2

This is the empirical Fisher information: the labels are those of the data. It must be the mean of the squared
gradients. The code published with the paper squares the gradient of whole batches instead, which tends to zero at a
minimum and is not the Fisher information. :func:`squared_batch_gradient` computes that for comparison. Under torchrun
every process calls :func:`diagonal_fisher` with the same data and measures its share of each chunk
(:mod:`privcirnet.distributed`); all get the same result. It costs one backward pass for each sample, vectorised over
chunks, and memory for `chunk` gradients of the measured weights.

Omega of a layer is linear in the information that weights the squared error. So the values of Omega of groups of
samples average to the whole's, and their spread gives its standard error::

    Omega_k = sum F_k (W - W')^2        Omega = mean of Omega_k        error = deviation of Omega_k / sqrt(groups)

W' is the same for all groups, the projection by the information of all samples. The information of many groups is kept
in at most :data:`MOST` sums. Beyond that, neighbours are added up, so memory does not grow with the samples.

:class:`OutputCurvature` measures the rise of the loss by a change D of a layer's weight otherwise, as one half of::

    Omega = sum over the outputs i of  g_i var(D_i x)

g_i is the squared gradient of a sample's loss in output i, summed over the places of the output and averaged over the
samples; x are the layer's inputs. It takes the curvature to be the product of the inputs' and of the gradients' second
moments, the latter diagonal. D is the rest of the least-squares fit (:mod:`privcirnet.nn.functional.least_squares`), as
the start of a network has it; a bias takes its mean. Against the diagonal information it knows how inputs correlate,
which is what the fit uses. It costs a forward and a backward pass for each batch, (inputs)^2 (places) for the moments,
and a fit for each block size.

Source: PrivCirNet (NeurIPS 2024), Section 3.3, Equation 2. Martens and Grosse, "Optimizing Neural Networks with
Kronecker-factored Approximate Curvature" (ICML 2015); places as in Grosse and Martens (ICML 2016), Section 3.
"""

import math
import statistics
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap  # type: ignore[attr-defined]
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy

from privcirnet import distributed
from privcirnet.errors import RuleError
from privcirnet.nn.circulant import find_layer
from privcirnet.nn.functional.circulant import admissible_block_sizes, expand, project, squared_error
from privcirnet.nn.functional.least_squares import Moments, channel_axis, fit_rows, read_by, some_of
from privcirnet.nn.graph import WeightedLayer, evaluating

Batches = tuple[Tensor, Tensor] | Iterable[tuple[Tensor, Tensor]]
"""Images (N, ...) and classes (N,), or probabilities (N, classes), as a pair or in batches."""
MEMORY = 2**30
"""Bytes that per-sample gradients of the measured weights may take at a time."""


def diagonal_fisher(
    model: nn.Module,
    data: Batches,
    names: Sequence[str],
    max_samples: int = 512,
    chunk: int = 0,
    progress: Callable[[int], object] | None = None,
) -> dict[str, Tensor]:
    """Measure the diagonal Fisher information of layers' weights, in evaluation mode, without changing the network.

    Args:
        model: A network with plain weights, on any device; images are moved to its parameters' device.
        data: Images, (N, ...), and class indices, (N,), or probabilities, (N, classes); or a loader of such batches.
        names: Module names of the linear and convolutional layers to measure.
        max_samples: Number of samples after which to stop.
        chunk: Number of per-sample gradients held at a time, by each process; 0 for as many as :data:`MEMORY` holds.
        progress: Called with the number of samples done by all processes, after each chunk.

    Returns:
        For each name F of the weight's shape, float64, on the weight's device, in units of the squared loss over the
        squared weight.

    Raises:
        RuleError: A name is not that of a plain linear or convolutional layer, `max_samples` or `chunk` is not
            positive, or there is no image.
    """
    if max_samples < 1 or chunk < 0:
        raise RuleError(
            "max_samples must be positive and chunk not negative",
            got=f"{max_samples} and {chunk}",
            remedy="use 512 and 0",
        )
    keys = {name: f"{name}.weight".removeprefix(".") for name in names}
    weights = {key: find_layer(model, name).weight.detach() for name, key in keys.items()}
    frozen = {key: value.detach() for key, value in model.named_parameters() if key not in weights}

    def loss(weights: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(model, frozen | weights, (image.unsqueeze(0),))
        return cross_entropy(logits, label.unsqueeze(0))

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))
    chunk = chunk or _chunk_for(sum(weight.nbytes for weight in weights.values()))
    device = next(model.parameters()).device
    total = {key: torch.zeros_like(value, dtype=torch.float64) for key, value in weights.items()}
    done = 0
    with evaluating(model), sdpa_kernel(SDPBackend.MATH):  # the attention that vmap can batch
        for images, labels in _chunks(data, max_samples, chunk * distributed.processes()):
            part = distributed.share(images).to(device), distributed.share(labels).to(device)
            if len(part[0]):
                for key, gradient in gradients(weights, *part).items():
                    total[key] += gradient.square().sum(0, dtype=torch.float64)
            done += len(images)
            if progress is not None:
                progress(done)
    if not done:
        raise RuleError("the Fisher information needs at least one sample", got="none", remedy="add data")
    return {name: distributed.total(total[key]) / done for name, key in keys.items()}


def squared_batch_gradient(model: nn.Module, data: Batches, names: Sequence[str]) -> dict[str, Tensor]:
    """Measure the mean over batches of the squared gradient of a batch's mean loss, in evaluation mode.

    The code published with PrivCirNet uses this instead of the Fisher information.

    Args:
        model: See :func:`diagonal_fisher`; left as it was.
        data: See :func:`diagonal_fisher`; each of its batches gives one gradient.

    Returns:
        Squared gradients, in the form of :func:`diagonal_fisher`.

    Raises:
        RuleError: A name is not that of a plain linear or convolutional layer.
    """
    weights = [find_layer(model, name).weight for name in names]
    total, batches = [torch.zeros_like(weight, dtype=torch.float64) for weight in weights], 0
    device = next(model.parameters()).device
    with evaluating(model), torch.enable_grad():
        for images, labels in _batches(data):
            loss = cross_entropy(model(images.to(device)), labels.to(device))
            gradients = torch.autograd.grad(loss, weights)
            total = [sums + gradient.double().square() for sums, gradient in zip(total, gradients, strict=True)]
            batches += 1
    return {name: sums / max(batches, 1) for name, sums in zip(names, total, strict=True)}


def _chunk_for(weight_bytes: int) -> int:
    """Return the largest power of two up to 64 whose gradients fit in :data:`MEMORY`, at least 1."""
    chunk = 64
    while chunk > 1 and chunk * weight_bytes > MEMORY:
        chunk //= 2
    return chunk


def _batches(data: Batches) -> Iterable[tuple[Tensor, Tensor]]:
    pair = isinstance(data, tuple) and isinstance(data[0], Tensor)
    return [data] if pair else data  # type: ignore[return-value]


def _chunks(data: Batches, max_samples: int, chunk: int) -> Generator[tuple[Tensor, Tensor]]:
    """Cut batches into chunks, and stop after `max_samples`."""
    remaining = max_samples
    for images, labels in _batches(data):
        yield from zip(images[:remaining].split(chunk), labels[:remaining].split(chunk), strict=True)
        remaining -= min(remaining, len(images))
        if not remaining:
            return


MOST = 16
"""Largest number of sums of groups that are kept."""


@dataclass(frozen=True)
class SensitivityEstimate:
    """A measured number.

    Attributes:
        value: mean over all samples.
    """

    value: float
    error: float


class _GroupSum(NamedTuple):
    """A sum over groups: their number, in whole ones, and each layer's information times that."""

    size: float
    of: dict[str, Tensor]


class Information:
    """The diagonal Fisher information of layers' weights in groups of samples, float64."""

    def __init__(self) -> None:
        self._sums: list[_GroupSum] = []
        self._per_sum = 1
        self._open: _GroupSum | None = None
        self._in_open = 0

    @property
    def groups(self) -> int:
        """Number of groups so far."""
        return len(self._sums) * self._per_sum + self._in_open

    def add(self, group: Mapping[str, Tensor], size: float = 1.0) -> None:
        """Add one more group of samples; ``group``: mean over its samples, in each weight's shape, by layer name."""
        part = _GroupSum(size, {name: values * size for name, values in group.items()})
        self._open, self._in_open = _added([self._open, part]) if self._open else part, self._in_open + 1
        if self._in_open < self._per_sum:
            return
        self._sums.append(self._open)
        self._open, self._in_open = None, 0
        if len(self._sums) == MOST:
            self._sums = [_added(self._sums[i : i + 2]) for i in range(0, MOST, 2)]
            self._per_sum *= 2

    def mean(self, name: str) -> Tensor:
        """Return the information of all samples in one layer's weight."""
        whole = _added([*self._sums, self._open] if self._open else self._sums, name)
        return whole.of[name] / whole.size

    def omegas(self, name: str, errors: Mapping[int, Tensor]) -> dict[int, SensitivityEstimate]:
        """Return Omega of one layer by block size; ``errors``: squared errors, to be weighted, by block size."""
        return {b: self.estimate(name, lambda part, error=error: (part * error).sum()) for b, error in errors.items()}

    def estimate(self, name: str, value: Callable[[Tensor], Tensor]) -> SensitivityEstimate:
        """Return the estimate of a linear function of one layer's information."""
        groups = [float(value(part.of[name])) / part.size for part in self._sums]
        return SensitivityEstimate(float(value(self.mean(name))), _standard_error(groups))


def _standard_error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def weight_errors(weight: Tensor, information: Tensor, block_sizes: Sequence[int], damping: float) -> dict[int, Tensor]:
    """Return (W - W')^2 by block size, of the weight's shape, (out, in, *kernel).

    Args:
        weight: dense weight.
        information: weights of the projection's entries, to be damped.
        damping: see :func:`privcirnet.nn.functional.circulant.damped`.
    """
    return {b: squared_error(weight, information, b, damping, pad=True) for b in block_sizes}


def energies(weight: Tensor, block_sizes: Sequence[int]) -> dict[int, Tensor]:
    """Return (b - 1) W^2 by block size b, of the weight's shape."""
    return {b: (b - 1) * weight.double().square() for b in block_sizes}


def _added(parts: Sequence[_GroupSum], *names: str) -> _GroupSum:
    """Return the sum of some layers' information, or of all."""
    of = {name: reduce(add, (part.of[name] for part in parts)) for name in names or parts[0].of}
    return _GroupSum(sum(part.size for part in parts), of)


PLACES = 4096
"""Largest number of places of a batch whose inputs are counted; more where a layer has many inputs."""


class OutputCurvature:
    """The moments of layers' inputs and the squared gradients of their outputs, batch by batch.

    Args:
        layers: layers by name, with plain weights and groups = 1; left as they are.
    """

    def __init__(self, layers: Mapping[str, WeightedLayer]) -> None:
        self._layers, self._random = layers, torch.Generator().manual_seed(0)
        self._moments = {
            name: Moments.zeros(0, layer.weight[0].numel(), layer.weight.device) for name, layer in layers.items()
        }

    def add(self, model: nn.Module, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Count a batch's inputs, and return the squared gradients g of each layer's outputs, (out,) float64, by name.

        Args:
            model: network with the layers; it runs in evaluation mode.
            images: (N, ...).
            labels: classes (N,), or probabilities (N, classes).
        """
        squared_gradients = {
            name: torch.zeros(len(layer.weight), dtype=torch.float64) for name, layer in self._layers.items()
        }

        def counted(name: str, layer: WeightedLayer, arguments: tuple[Tensor, ...], output: Tensor) -> None:
            moments, axis = self._moments[name], channel_axis(layer)
            x = read_by(layer, arguments[0].detach()).reshape(-1, len(moments.input_sum))
            (x,) = some_of(max(PLACES, len(moments.input_sum)), self._random, x)
            moments.add(x.float(), x[:, :0].float())

            def squared(gradient: Tensor) -> None:
                squares = gradient.movedim(axis, -1).flatten(0, -2).square().sum(0, dtype=torch.float64)
                squared_gradients[name] += squares.cpu() / len(images)

            output.register_hook(squared)

        hooks = [layer.register_forward_hook(partial(counted, name)) for name, layer in self._layers.items()]
        try:
            with evaluating(model), torch.enable_grad():
                images = images.detach().requires_grad_()  # all weights may be frozen
                torch.autograd.grad(cross_entropy(model(images), labels, reduction="sum"), images)
        finally:
            for hook in hooks:
                hook.remove()
        return squared_gradients

    def errors(self, name: str, block_sizes: Sequence[int]) -> dict[int, Tensor]:
        """Return var(D x) of each output of a layer, (out,) float64, by block size.

        A layer that a block size does not divide is padded, and not fitted.
        """
        weight, variances = self._layers[name].weight.detach(), dict[int, Tensor]()
        moments, (out, into) = self._moments[name].through(weight), weight.shape[:2]
        for b in block_sizes:
            divides = bool(admissible_block_sizes(weight.shape, (b,)))
            rows = fit_rows(moments, weight, b, moments.ridge(b))[0] if divides else project(weight, b, pad=True)
            variances[b] = moments.output_errors(weight - expand(rows, b, (out, into))).cpu()
        return variances
