"""Whether a program computes what the quantized network does that it was lowered from."""

from collections.abc import Mapping

import torch
from torch import Tensor, fx

from privcirnet.errors import RuleError
from privcirnet.he.layers.integer import Values
from privcirnet.he.program.bounds import real_name
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.operation import Node
from privcirnet.nn.agreement import agree, node_values, returned
from privcirnet.nn.steps import refine
from privcirnet.passes.lower import Lowered
from privcirnet.passes.ranges import peaks, usual

ROUNDED = 1e-2
"""Largest difference of a program's logits, as a share of the largest one: a few values rounded the other way."""
_TRIED = 32
"""Images among which one without unusual values is sought."""


@torch.no_grad()
def check_program(lowered: Lowered, network: fx.GraphModule, images: Tensor) -> None:
    """Raise unless a program in clear gives the logits of the quantized network on an image.

    Args:
        network: that it was lowered from; left as it was.
        images: real, (N, C, H, W). One without unusual values is taken; if there is none, nothing is compared.

    Raises:
        RuleError: it does not; names the first layer whose values differ.
    """
    program, exact = lowered.program, refine(network, lowered.guard_bits).double().eval()
    tried = images[:_TRIED].double()
    kept = tried[usual(peaks(exact, tried))][:1]
    if not len(kept):
        return
    source = program.nodes[0]
    integers = (kept * 2.0**-source.log_step + 0.5).floor()
    wanted = node_values(exact, integers * 2.0**source.log_step)
    found = interpret(program, integers[0].long().cpu().numpy())
    nodes = program.nodes[: program.nodes.index(program.logits) + 1]
    if not _same(nodes[-1], found, wanted[returned(exact).name]):
        named = (node for node in nodes if (real := real_name(node)) in wanted and not _same(node, found, wanted[real]))
        first = next(named, nodes[-1])
        rule, got = "a program must compute what its quantized network does", f"other values from {_said(first)} on"
        raise RuleError(rule, got=got, remedy="quantize what fuse(model) returned; report this network if you did")


def _same(node: Node, found: Mapping[str, Values], wanted: Tensor) -> bool:
    """Whether a node's integers are the values of a network, in which tokens (T, C) have their channels last."""
    ours = torch.from_numpy(found[node.name] * 2.0**node.log_step)
    theirs = wanted[0].mT if wanted.ndim == 3 else wanted[0]
    return agree(ours.reshape(1, -1), theirs.reshape(1, -1).cpu(), ROUNDED)


def _said(node: Node) -> str:
    return repr(node.module or node.name)
