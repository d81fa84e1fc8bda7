"""What runs exactly as it is (he.nonlinear=exact), however it is written: activations, gates, max pools as modules."""

from collections.abc import Iterator
from math import prod

import torch
from torch import Tensor, fx, nn

from privcirnet.nn.nonpolynomial import FUNCTION_MODULES
from privcirnet.passes.surgery.edit import Edit, shape_of, source_of
from privcirnet.passes.surgery.pools import side_of, window_of

_KNOWN = f"{', '.join(kind.__name__ for kind in FUNCTION_MODULES)}, and max pools"


def keep(edit: Edit, node: fx.Node) -> None:
    """Let the module that computes what a node does take its place, or note that there is none."""
    shape = shape_of(source_of(node))
    values = torch.linspace(-9.1, 7.3, prod(shape)).to(edit.like)  # few of them, yet no two functions agree on all
    values = values[torch.randperm(len(values), generator=torch.Generator().manual_seed(0))].reshape(shape)
    wanted = edit.compute(node, values.clone())
    if (found := next((form for form in _forms(edit, node) if _alike(form(values), wanted)), None)) is None:
        edit.cannot(node, f'replace it (activation="aespa"), or use one of {_KNOWN}')
    elif type(edit.module(node)) is not type(found) or edit.calls(node.target) > 1:  # each has a name
        edit.replace(node, found, "")


def _alike(found: Tensor, wanted: Tensor) -> bool:
    return found.shape == wanted.shape and torch.allclose(found, wanted, atol=1e-6)


def _forms(edit: Edit, node: fx.Node) -> Iterator[nn.Module]:
    """Yield what a node may be: activations and gates, or max pools that give its shape."""
    before, after = shape_of(source_of(node)), shape_of(node)
    if before == after:
        yield from (kind() for kind in FUNCTION_MODULES)
    if len(before) != 4 or len(after) != 4:
        return
    if isinstance(module := edit.module(node), nn.MaxPool2d):
        yield nn.MaxPool2d(module.kernel_size, module.stride, module.padding, ceil_mode=module.ceil_mode)
    elif isinstance(given := window_of(edit.graph, node), nn.MaxPool2d):
        yield nn.MaxPool2d(given.kernel_size, given.stride, given.padding, ceil_mode=given.ceil_mode)
    if side := side_of(before, after):
        yield nn.MaxPool2d(side if side[0] != side[1] else side[0])
