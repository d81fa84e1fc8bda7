"""Comparisons of a network's forms: a quantized network with the one it was made of, a program with the quantized."""

from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor, fx, nn

from privcirnet.errors import RuleError
from privcirnet.he.layers.integer import Values
from privcirnet.he.program.bounds import real_name
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import Truncate
from privcirnet.he.program.program import Program
from privcirnet.nn.agreement import agree, node_values, returned
from privcirnet.nn.graph import evaluating, several_outputs
from privcirnet.nn.quantization_steps import refine
from privcirnet.passes.fuse import fuse_at
from privcirnet.passes.lower import Lowered
from privcirnet.passes.ranges import peaks, typical_images

_COMPARED = 8
"""Number of images."""


@torch.no_grad()
def check_reference(network: fx.GraphModule, reference: nn.Module, images: Tensor, tolerance: float) -> None:
    """Raise unless the logits of a quantized network are near those of the network that it was made of.

    Args:
        reference: network that is not quantized; left as it was.
        images: real, (N, C, H, W); the first few are compared.
        tolerance: largest difference (root mean square), as a share of the distance of the reference's logits from the
            mean of their image: a bias that all classes have hides nothing.

    Raises:
        RuleError: the logits differ; names the first layer whose values differ as much.
    """
    sample = images[:_COMPARED]
    with evaluating(reference), evaluating(network):
        expected, computed = reference(_of_type(reference, sample).clone()), network(sample.clone())
        if not isinstance(expected, Tensor):
            raise several_outputs(reference, type(expected).__name__)
        share = _distance(_between_classes(computed), _between_classes(expected))
        if share <= tolerance:
            return
        try:
            detail = f", from {_first(network, reference, sample, tolerance)!r} on"
        except RuleError as error:
            detail = f"; of the reference, {error.rule}: got {error.got}"
    rule = f"a program's logits must be within {tolerance:g} of those of the reference"
    remedy = "give the network that was fused; train it quantized, with more bits, or give a larger tolerance"
    raise RuleError(rule, got=f"{share:.2g} of their size{detail}", remedy=remedy)


def _of_type(model: nn.Module, images: Tensor) -> Tensor:
    """Return images in the type of a network's weights."""
    return images.to(next(model.parameters(), images).dtype)


def _first(network: fx.GraphModule, reference: nn.Module, images: Tensor, tolerance: float) -> str:
    """Return the first node of both graphs whose values differ by more than the tolerance, else the output."""
    ours, inputs = node_values(network, images), _of_type(reference, images)
    theirs = node_values(fuse_at(reference, inputs), inputs)
    common = (name for name in theirs if name in ours and ours[name].shape == theirs[name].shape)
    return next((name for name in common if _distance(ours[name], theirs[name]) > tolerance), returned(network).name)


def _between_classes(logits: Tensor) -> Tensor:
    """Return logits without their mean over the classes of an image; a single output as it is."""
    return logits - logits.mean(-1, keepdim=True) if logits.shape[-1:].numel() > 1 else logits


def _distance(computed: Tensor, expected: Tensor) -> float:
    """Return the difference as a share of the expected size; infinite where shapes differ or values are no numbers."""
    if computed.shape != expected.shape:
        return float("inf")
    share = ((computed - expected).double().square().mean() / expected.double().square().mean()).sqrt().item()
    return share if share == share else float("inf")  # noqa: PLR0124


ROUNDED = 1e-2
"""Largest difference of a program's logits, as a share of the largest one: a few values rounded the other way."""
_TRIED = 32
"""Number of images among which one without unusual values is sought."""
_VALUES = 2**26
"""Number of values of all nodes that exact programs are compared by: many images of a small network, few of a large."""
_LEAST = 4
"""Number of images that are compared however large the network is."""


@torch.no_grad()
def check_program(lowered: Lowered, network: fx.GraphModule, images: Tensor) -> int:
    """Raise unless a program in clear gives the logits of the quantized network on images.

    Where no truncation is at random they must be equal on all images, as far as there is time.

    Args:
        network: network that it was lowered from; left as it was.
        images: real, (N, C, H, W). Where truncations are at random one without unusual values is taken; if there is
            none, nothing is compared.

    Returns:
        number of images compared.

    Raises:
        RuleError: the logits differ; names the first layer whose values differ.
    """
    program, network = lowered.program, refine(network, lowered.guard_bits).double().eval()
    source, nodes = program.nodes[0], program.nodes[: program.nodes.index(program.logits) + 1]
    exact = not any(isinstance(node.operation, Truncate) for node in program.nodes)
    if exact:
        samples = images[: images_within(program, _VALUES)].double()
    else:
        tried = images[:_TRIED].double()
        samples = tried[typical_images(peaks(network, tried))][:1]
    tolerance = 0.0 if exact else ROUNDED
    reader = next(iter(next(node for node in network.graph.nodes if node.op == "placeholder").users))
    for image in samples.split(1):
        expected = node_values(network, image)
        integers = expected[reader.name][0] * 2.0**-source.log_step
        computed = interpret(program, integers.long().cpu().numpy())
        if not _same(nodes[-1], computed, expected[returned(network).name], tolerance):
            pairs = ((node, expected[real]) for node in nodes if (real := real_name(node)) in expected)
            first = next((node for node, values in pairs if not _same(node, computed, values, ROUNDED)), nodes[-1])
            rule, got = "a program must compute what its quantized network does", f"other values from {_said(first)} on"
            raise RuleError(rule, got=got, remedy="give quantize(model, images); report this network if you did")
    return len(samples)


def images_within(program: Program, values: int) -> int:
    """Return how many images have so many values at all nodes together: many of a small network, a few of a large."""
    return max(_LEAST, values // sum(prod(node.shape) for node in program.nodes))


def _same(node: Node, computed: Mapping[str, Values], expected: Tensor, tolerance: float) -> bool:
    """Return whether a node's integers are the values of a network, in which tokens (T, C) have their channels last."""
    ours = torch.from_numpy(computed[node.name] * 2.0**node.log_step)
    theirs = expected[0].mT if expected.ndim == 3 else expected[0]
    if not tolerance:
        return torch.equal(ours.flatten(), theirs.flatten().cpu())
    return agree(ours.reshape(1, -1), theirs.reshape(1, -1).cpu(), tolerance)


def _said(node: Node) -> str:
    return repr(node.module or node.name)
