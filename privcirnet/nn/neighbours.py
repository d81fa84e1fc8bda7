"""Neighbours of a node in a torch.fx graph: layers whose sum it reads, and layers that it is folded into.

A scale in front of a square can be moved into the nodes before it (:func:`summands`). Behind a layer it goes into its
weights. Behind a residual it goes into every summand: into layers directly, and into another square as its root, whose
other readers then divide by it (:mod:`privcirnet.passes.fuse`). Average pools only pass values on.

A norm, an :class:`.Affine` or an attention's factor is folded into the layer before it, or into those behind
(:func:`place_of`). Two kinds go into the layers behind: a batch norm of tokens or vectors, whose scales belong to the
columns of linear layers, and a scale of all values without a shift. A batch norm of maps has the zeros of padding
behind it, so it needs a convolution before it.
"""

from dataclasses import dataclass
from types import UnionType
from typing import Any, NamedTuple

from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from privcirnet.nn.activations import Aespa, Square
from privcirnet.nn.attention import PolynomialAttention
from privcirnet.nn.example import IMAGE
from privcirnet.nn.graph import WeightedLayer, is_sum, module_of
from privcirnet.nn.moves import Rearrange, SliceChannels, Take
from privcirnet.nn.norm import Affine, TokenBatchNorm
from privcirnet.nn.supported_modules import row_of


@dataclass(frozen=True)
class Summands:
    """The terms of a node's input; a single term is a sum of one.

    Attributes:
        layers: linear layers and convolutions, also those behind a batch norm, or of which rows are taken.
        others: nodes that no scale can be moved into.
        between: the additions, and the norms, pools and moves that layers are behind.
    """

    layers: tuple[fx.Node, ...] = ()
    squares: tuple[fx.Node, ...] = ()
    others: tuple[fx.Node, ...] = ()
    between: tuple[fx.Node, ...] = ()

    def __add__(self, other: "Summands") -> "Summands":
        """Return the terms of both together."""
        return Summands(
            self.layers + other.layers,
            self.squares + other.squares,
            self.others + other.others,
            self.between + other.between,
        )


def summands(graph: fx.GraphModule, node: fx.Node) -> Summands:
    """Return the terms of a node's (first) input.

    >>> from privcirnet.nn.graph import trace
    >>> graph = trace(nn.Sequential(nn.Linear(2, 2), Square()))
    >>> summands(graph, list(graph.graph.nodes)[2]).layers
    (_0,)
    """
    return _terms(graph, node.all_input_nodes[0])


def _terms(graph: fx.GraphModule, node: fx.Node) -> Summands:  # noqa: PLR0911
    if is_sum(node):
        left, right = (_terms(graph, source) for source in node.all_input_nodes)
        return left + right + Summands(between=(node,))
    match module_of(graph, node):
        case nn.Linear() | nn.Conv1d() | nn.Conv2d():
            return Summands(layers=(node,))
        case Square() | Aespa():
            return Summands(squares=(node,))
        case module if row_of(module).kind == "nothing":
            return _terms(graph, node.all_input_nodes[0])
        case _BatchNorm() | Affine():
            before = _terms(graph, node.all_input_nodes[0])
            alone = (_BatchNorm, Affine, Rearrange)
            is_affine = before.layers and all(
                isinstance(module_of(graph, node_between), alone) for node_between in before.between
            )
            return before + Summands(between=(node,)) if is_affine else Summands(others=(node,))
        case nn.AvgPool2d(divisor_override=None):
            before = _terms(graph, node.all_input_nodes[0])
            return before if not before.layers else before + Summands(between=(node,))
        case Rearrange() as move if move.keeps_map_channels():
            before, moved = _terms(graph, node.all_input_nodes[0]), Summands(between=(node,))
            return Summands(others=(node,)) if before.squares or before.others else before + moved
        case _:
            return Summands(others=(node,))


def reached_by(graph: fx.GraphModule, node: fx.Node) -> set[fx.Node]:
    """Return the layers whose weights change when a scale in front of a square is moved into the nodes before it.

    Args:
        node: A square or an AESPA activation.
    """
    terms = summands(graph, node)
    reached = set(terms.layers)
    for square in terms.squares:
        reached |= reached_by(graph, square) | set(readers(graph, square))
    return reached


def readers(graph: fx.GraphModule, node: fx.Node) -> list[fx.Node]:
    """Return the linear layers and convolutions that read a node, also behind an average pool."""
    return [user for user in uses(graph, node) if isinstance(module_of(graph, user), WeightedLayer)]


def channel_readers(graph: fx.GraphModule, node: fx.Node) -> list[fx.Node]:
    """Return the readers of the channels of tokens; in place of mere moves of tokens, the readers of those."""
    readers: list[fx.Node] = []
    for user in node.users:
        module = module_of(graph, user)
        passes = isinstance(module, Take) or (isinstance(module, Rearrange) and module.keeps_channels())
        readers += channel_readers(graph, user) if passes else [user]
    return readers


def uses(graph: fx.GraphModule, node: fx.Node) -> list[fx.Node]:
    """Return the readers of a node; in place of an average pool, its readers."""
    pooled = {user: isinstance(module_of(graph, user), nn.AvgPool2d) for user in node.users}
    return [use for user, further in pooled.items() for use in (uses(graph, user) if further else [user])]


VECTORS = "a BatchNorm1d must work on vectors (N, C), right behind or before linear layers"
"""Rule that a network breaks whose values may not be vectors, and its remedy."""
FLATTEN = "flatten first, or use polynomial_, which knows the shapes"


_TWO = 2
"""Number of axes of vectors (N, C), and of places (H, W)."""


class FoldTarget(NamedTuple):
    """The place where a node is folded.

    Attributes:
        layers: nodes of linear layers or convolutions; one of them if they are before it.
    """

    layers: tuple[fx.Node, ...]
    behind: bool = False


def place_of(graph: fx.GraphModule, node: fx.Node) -> FoldTarget | None:
    """Return the layers that a batch norm, an Affine or an attention's factor is folded into, None if there are none.

    >>> from privcirnet.nn.graph import trace
    >>> graph = trace(nn.Sequential(nn.Linear(2, 2), Affine(2.0, 1.0)))
    >>> place_of(graph, list(graph.graph.nodes)[2])
    FoldTarget(layers=(_0,), behind=False)
    """
    module, before = module_of(graph, node), layer_before(graph, node)
    of = before and module_of(graph, before)
    match module:
        case nn.BatchNorm1d() if isinstance(of, nn.Conv1d):
            behind, linear = [], False
        case nn.BatchNorm1d() if not _is_vector(graph, node.all_input_nodes[0]):
            return None
        case TokenBatchNorm() | nn.BatchNorm1d():
            before = before if isinstance(of, nn.Linear) else None
            behind = channel_readers(graph, node)
            linear = all(isinstance(module_of(graph, reader), nn.Linear) for reader in behind)
        case Affine(shift=0):
            behind = layers_behind(graph, node) or []
            linear = True
        case Affine():
            behind, linear = [], False
        case PolynomialAttention():
            before, behind, linear = None, layers_behind(graph, node) or [], True
        case _:
            before = before if isinstance(of, nn.Conv1d | nn.Conv2d) else None
            behind, linear = [], False
    if before is not None:
        return FoldTarget((before,))
    return FoldTarget(tuple(behind), behind=True) if behind and linear else None


def layer_before(graph: fx.GraphModule, node: fx.Node) -> fx.Node | None:
    """Return the layer that a node alone reads, at most through nodes that are folded into that layer too."""
    source = node.all_input_nodes[0]
    if len(source.users) > 1:
        return None
    match module_of(graph, source):
        case nn.Linear() | nn.Conv1d() | nn.Conv2d():
            return source
        case _BatchNorm() as norm if not all(isinstance(child, nn.Identity) for child in norm.children()):
            return None
        case _BatchNorm() | Affine():
            place = place_of(graph, source)
            return place.layers[0] if place and not place.behind else None
        case module if row_of(module).kind == "nothing" or _keeps_map_channels(module):
            return layer_before(graph, source)
        case _:
            return None


def _keeps_map_channels(module: nn.Module | None) -> bool:
    return isinstance(module, Rearrange) and module.keeps_map_channels()


def _is_vector(graph: fx.GraphModule, node: fx.Node) -> bool:
    """Return whether a value is known to be vectors (N, C), whose channels are the axis that a BatchNorm1d works on."""
    while node.all_input_nodes:
        match module_of(graph, node):
            case nn.Flatten(start_dim=1, end_dim=-1) | Take():
                return True
            case Rearrange(after=after):
                return len(after) == 1
            case None if _gives_vectors(node):
                return True
            case nn.Conv1d() | nn.Conv2d() | nn.AvgPool2d() | None:
                return False
            case _:
                node = node.all_input_nodes[0]
    table = len(graph.meta.get(IMAGE, ())) == 1 or len(node.meta.get("shape") or ()) == _TWO
    return node.op == "placeholder" and table


def _numbers(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return sizes or axes, given one by one or as one list."""
    return tuple(arguments[0]) if arguments and isinstance(arguments[0], list | tuple) else arguments


def _gives_vectors(node: fx.Node) -> bool:
    """Return whether a function or method gives vectors (N, C) of maps, by its arguments alone."""
    kind, arguments = getattr(node.target, "__name__", str(node.target)), (*node.args[1:], *node.kwargs.values())
    match kind:
        case "flatten":
            return arguments in ((1,), (1, -1))
        case "view" | "reshape":
            return len(_numbers(arguments)) == _TWO
        case "mean":
            return len(arguments) == 1 and len(_numbers(arguments)) == _TWO
        case _:
            return False


def layers_behind(graph: fx.GraphModule, node: fx.Node, kinds: UnionType = WeightedLayer) -> list[fx.Node] | None:
    """Return the linear layers and convolutions that read a node, moved or not; None if others read it.

    Args:
        kinds: of modules that are looked for.
    """
    layers: list[fx.Node] = []
    for user in node.users:
        match module_of(graph, user):
            case module if isinstance(module, kinds):
                layers.append(user)
            case module if _only_moves(module):
                further = layers_behind(graph, user, kinds)
                if further is None:
                    return None
                layers += further
            case _:
                return None
    return layers


def _only_moves(module: nn.Module | None) -> bool:
    """Return whether a module leaves values as they are, but for their places."""
    return isinstance(module, nn.Flatten | Rearrange | Take | SliceChannels) or row_of(module).kind == "nothing"
