"""Layout of values: channels first, as in a map (N, C, H, W), or last, as in tokens (N, ..., C) and vectors (N, C).

A layer defines the layout of its input and output; between layers, operations that work value by value keep it.
"""

from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from privcirnet.nn.activations import Aespa1d, Aespa2d
from privcirnet.nn.attention import PolynomialAttention, SoftmaxAttention
from privcirnet.nn.modules import kind_of
from privcirnet.nn.moves import HeadProduct, Rearrange, Take, ToTokens
from privcirnet.nn.norm import TokenBatchNorm
from privcirnet.passes.surgery.edit import GraphEditor, shape_of

_LAST = (nn.Linear, TokenBatchNorm, Aespa1d, PolynomialAttention, SoftmaxAttention, HeadProduct, ToTokens, Take)
_FIRST = (nn.Conv2d, nn.AvgPool2d, Aespa2d, nn.Flatten, _BatchNorm, nn.GroupNorm, nn.InstanceNorm2d)


def channels_last(edit: GraphEditor, node: fx.Node) -> bool:
    """Return whether the channels of a node's value are its last axis."""
    return _found(edit, node, set()) or False


def _found(edit: GraphEditor, node: fx.Node, visited: set[fx.Node]) -> bool | None:
    """Return whether channels are last, None if no node outside of ``visited`` defines it."""
    if len(shape_of(node)) < 4:
        return True
    is_last = _said_by(edit, node)
    if is_last is not None or node in visited:
        return is_last
    visited.add(node)
    sources = [] if kind_of(edit.graph, node) == "move" else node.all_input_nodes
    for source in sources:
        if kind_of(edit.graph, source) != "move" and "constant" not in source.meta:
            return _found(edit, source, visited)
    return _read_as_last(edit, node, visited)


def _read_as_last(edit: GraphEditor, node: fx.Node, visited: set[fx.Node]) -> bool | None:
    """Return whether the readers of a value have its channels last; None if they do not define it."""
    for user in node.users:
        if isinstance(edit.module(user), Rearrange):  # which says what it gives
            continue
        is_last = _said_by(edit, user)
        if is_last is None and kind_of(edit.graph, user) != "move":
            siblings = [s for s in user.all_input_nodes if s is not node and kind_of(edit.graph, s) not in ("move", "")]
            is_last = _found(edit, siblings[0], visited) if siblings else _read_as_last(edit, user, visited)
        if is_last is not None:
            return is_last
    return None


def _said_by(edit: GraphEditor, node: fx.Node) -> bool | None:
    """Return whether an operation has its channels last, None if it works on any layout."""
    module = edit.module(node)
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return not type(module).__name__.endswith("2d")
    if isinstance(module, Rearrange):
        return len(module.after) < 3
    if isinstance(module, _LAST):
        return True
    first = isinstance(module, _FIRST) or node.op == "placeholder"
    return False if first or kind_of(edit.graph, node) in ("average", "maximum") else None
