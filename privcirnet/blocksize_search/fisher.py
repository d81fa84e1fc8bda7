"""Diagonal Fisher information: the sensitivity of the loss to each weight.

For a network trained to convergence it stands in for the diagonal of the Hessian::

    F = mean over the samples of (gradient of that sample's cross-entropy)^2

This is the empirical Fisher information: the labels are those of the data. It must be the mean of the squared
gradients. The code published with the paper squares the gradient of whole batches instead, which tends to zero at a
minimum and is not the Fisher information. :func:`squared_batch_gradient` computes that for comparison.

Under torchrun every process calls it with the same data and measures its share of each chunk
(:mod:`privcirnet.distributed`); all get the same result.

Cost: one backward pass for each sample, vectorised over chunks; memory for `chunk` gradients of the measured weights.

Source: PrivCirNet (NeurIPS 2024), Section 3.3, Equation 2.
"""

from collections.abc import Callable, Generator, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap  # type: ignore[attr-defined]
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy

from privcirnet import distributed
from privcirnet.errors import RuleError
from privcirnet.nn.graph import evaluating, find_layer

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
