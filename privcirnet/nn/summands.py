"""The layers and squares whose sum a square reads, found in a torch.fx graph.

A scale in front of a square can be moved into the nodes before it. Behind a layer it goes into its weights. Behind a
residual it goes into every summand: into layers directly, and into another square as its root, whose other readers then
divide by it (:mod:`privcirnet.passes.fuse`). Average pools only pass values on.
"""

from dataclasses import dataclass

from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from privcirnet.nn.activations import Aespa, Square
from privcirnet.nn.graph import is_sum, module_of
from privcirnet.nn.moves import Rearrange, Take
from privcirnet.nn.norm import Affine


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
        case nn.Linear() | nn.Conv2d():
            return Summands(layers=(node,))
        case Square() | Aespa():
            return Summands(squares=(node,))
        case nn.Identity() | _DropoutNd():
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
    return [user for user in uses(graph, node) if isinstance(module_of(graph, user), nn.Linear | nn.Conv2d)]


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
