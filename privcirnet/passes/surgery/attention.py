"""Recognition of attention: however it is written, it becomes one module of queries, keys and values.

It is found by its softmax, or by torch's scaled_dot_product_attention: softmax(scale q k^T + constants) v, in any
layout. Constants are public masks and position biases. Each attention read is compared with the graph itself on
random queries, keys and values; anything else is refused.
"""

import math
import operator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.node import map_arg

from privcirnet.nn.agreement import agree
from privcirnet.nn.attention import PolynomialAttention, SoftmaxAttention, softmax_attention
from privcirnet.nn.moves import Rearrange, SliceChannels
from privcirnet.nn.norm import TokenBatchNorm
from privcirnet.nn.supported_modules import kind_of
from privcirnet.passes.multihead import Multihead
from privcirnet.passes.surgery.edit import TRAIN, GraphEditor, Replacement, arguments_of, path_of, shape_of, values_of
from privcirnet.passes.surgery.layout import move_behind

_DOT = F.scaled_dot_product_attention
_SOFTMAX = (F.softmax, torch.softmax, "softmax")
_PRODUCTS = (torch.matmul, operator.matmul, torch.bmm, "matmul", "bmm")
_EINSUM = (torch.einsum, torch.functional.einsum)
_FAR_BELOW = -1000.0
"""Distance below the largest of its query at which a constant masks a key: its exp is 0 in any number of bits."""
_OWNER = "owner"
"""Key of a node's ``meta``: path and class of the module whose forward an attention was in."""
_NEVER = 20.0
"""Distance below the largest of its query at which a constant masks a key where weights are not those of a softmax."""
_WRITE = "write attention as softmax(scale * q @ k.mT + constants) @ v, of the tokens of an image"
_PUBLIC = "let masks and position biases be constants, the same for all images"
_PAIRS = "keep softmax attention, without polynomial_: a polynomial one loses only keys that are masked for all queries"


class _UnlikeError(Exception):
    """A part of a graph that is no attention; the text is the remedy."""


@dataclass(frozen=True)
class _Product:
    """Sums over an axis that two values share, with a letter for each axis as in an einsum.

    Axes are n images (or images, windows and heads as one), w windows, h heads, s the one that is summed over, x and y
    those of one value alone.
    """

    left: fx.Node
    right: fx.Node
    left_axes: str
    right_axes: str
    axes: str

    def beginning_with(self, letter: str, at: fx.Node | None = None) -> "_Product":
        """Return the product with the value on the left that has an axis, or that a node gives."""
        if self.left is at or (at is None and letter in self.left_axes):
            return self
        return _Product(self.right, self.left, self.right_axes, self.left_axes, self.axes)

    def renamed(self, names: dict[str, str]) -> "_Product":
        """Return the product with other letters for its axes."""
        return _Product(self.left, self.right, *("".join(names[x] for x in axes) for axes in self._all))

    @property
    def _all(self) -> tuple[str, str, str]:
        return self.left_axes, self.right_axes, self.axes


@dataclass(frozen=True)
class _Attention:
    """softmax(scale q k^T + constants) v in a graph.

    Axes are n images (or images, windows and heads as one), w windows, h heads, i queries, j keys, d and e channels.
    Each head of each window is one head of the image.

    Attributes:
        last: the node that gives the result.
        parts: nodes of queries, keys and values.
        axes: axes of the parts and of the result.
        scale: one number, or one of each head, (w h, 1, 1).
        constants: (w h, i, j), minus infinity where a pair is masked; None for none.
    """

    last: fx.Node
    parts: tuple[fx.Node, fx.Node, fx.Node]
    axes: tuple[str, str, str, str]
    scale: float | Tensor
    constants: Tensor | None


def read_attentions(edit: GraphEditor) -> set[fx.Node]:
    """Put a module in the place of every attention, which computes the same.

    Returns:
        Softmaxes of products outside of attention, which are noted as problems.
    """
    refused = set[fx.Node]()
    for node in list(edit.graph.graph.nodes):
        dot = node.target == _DOT
        if "constant" in node.meta or not (dot or (_is_softmax(edit, node) and _scores_before(node))):
            continue
        try:
            attention = _scaled_dot(edit, node) if dot else _of_softmax(edit, node)
            _check(edit, attention)
            _put(edit, attention)
        except _UnlikeError as error:
            edit.cannot(node, str(error))
            refused.add(node)
        except (RuntimeError, ValueError, LookupError, TypeError):  # of shapes that fit no attention
            edit.cannot(node, _WRITE)
            refused.add(node)
    edit.graph.graph.eliminate_dead_code()
    return refused


def settle_attention(edit: GraphEditor, node: fx.Node, *, own: bool) -> None:
    """Make softmax attention a polynomial one, or keep it, and report it.

    Args:
        own: whether to keep it.
    """
    module = edit.module(node)
    assert isinstance(module, SoftmaxAttention)
    path, before = node.meta.get(_OWNER, (path_of(node), type(module).__name__))
    if own:
        if _OWNER in node.meta:
            edit.changes.append(Replacement(path, before, type(module).__name__))
        return
    constants = module.constants
    if constants is not None and (constants < constants.amax(-1, keepdim=True) - _NEVER).any():
        edit.cannot(node, _PAIRS)
        return
    keys = node.args[1 if len(node.args) > 1 else 0]
    assert isinstance(keys, fx.Node)
    width = shape_of(keys)[-1] // (1 if len(node.args) > 1 else 3)
    polynomial = PolynomialAttention(width, module.heads, shape_of(keys)[1], module.scale, constants)
    edit.graph.set_submodule(str(node.target), polynomial.to(edit.like).train(edit.graph.training))
    edit.inexact.add(node.name)
    edit.read.pop(node.name, None)  # queries, keys and values are joined behind
    edit.changes.append(Replacement(path, before, type(polynomial).__name__, TRAIN))


def join_parts(edit: GraphEditor) -> None:
    """Let attentions read the layer of all queries, keys and values, or channels of it, not moves of its values.

    Args:
        edit: the network, its moves settled.
    """
    for node in list(edit.graph.graph.nodes):
        if not isinstance(edit.module(node), SoftmaxAttention | PolynomialAttention) or len(node.args) != 3:
            continue
        width, parts = shape_of(node)[-1], list(node.args)
        channels = [_channels_of(edit, part) for part in parts]
        source = parts[0].all_input_nodes[0]
        whole = isinstance(layer := edit.module(source), nn.Linear) and layer.out_features == 3 * width
        if whole and channels == [(i * width, width) for i in range(3)] and set(source.users) == set(parts):
            node.args = (source,)
            continue
        for part, few in zip(parts, channels, strict=True):
            if few:
                name, before = edit.free(f"{part.name}_channels"), part.all_input_nodes[0]
                node.replace_input_with(part, edit.insert(part, name, SliceChannels(*few), (before,)))
    edit.graph.graph.eliminate_dead_code()


def _channels_of(edit: GraphEditor, node: fx.Node) -> tuple[int, int] | None:
    """Return the first and the number of the channels of tokens that a move takes, None if it does anything else."""
    move = edit.module(node)
    if (
        not isinstance(move, Rearrange)
        or len(move.before) != 2
        or len(move.after) != 2
        or move.before[0] != move.after[0]
    ):
        return None
    places = move.grid.places().view(move.after)
    first = int(places[0, 0])
    sliced = first + torch.arange(move.before[0])[:, None] * move.before[1] + torch.arange(move.after[1])
    return (first, move.after[1]) if torch.equal(places, sliced) else None


def _scaled_dot(edit: GraphEditor, node: fx.Node) -> _Attention:
    """Return the attention of torch's scaled_dot_product_attention."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    arguments = arguments_of(node, *names)
    parts, mask = (arguments["query"], arguments["key"], arguments["value"]), arguments.get("attn_mask")
    if any("constant" in part.meta for part in parts):
        raise _UnlikeError("let queries, keys and values depend on the image")
    shapes = [shape_of(part) for part in parts]
    images = {5: "nwh", 4: "nh"}.get(len(shapes[0]), "n")
    if any(len(shape) != len(images) + 2 or shape[: len(images)] != shapes[0][: len(images)] for shape in shapes):
        raise _UnlikeError(_WRITE)
    constants = edit.like.new_zeros(shapes[0][-2], shapes[1][-2])
    if isinstance(mask, fx.Node):
        if "constant" not in mask.meta:
            raise _UnlikeError(_PUBLIC)
        constants = mask.meta["constant"].detach()
        if constants.dtype == torch.bool:
            constants = edit.like.new_zeros(constants.shape).masked_fill(~constants, -math.inf)
    elif arguments.get("is_causal"):
        constants = constants.masked_fill(torch.ones_like(constants).triu(1).bool(), -math.inf)
    scale = shapes[0][-1] ** -0.5 if arguments.get("scale") is None else float(arguments["scale"])
    whole = constants.expand(*shapes[0][:-1], shapes[1][-2])
    axes = (f"{images}id", f"{images}jd", f"{images}je", f"{images}ie")
    return _Attention(node, parts, axes, scale, _constants(edit, whole, f"{images}ij"))


def _of_softmax(edit: GraphEditor, node: fx.Node) -> _Attention:
    """Return the attention whose weights a softmax computes, between a product of two values and another one."""
    first = _scores_before(node)
    assert first is not None
    weights, last = node, _reader(node)
    while not _is_product(last):
        weights, last = last, _reader(last)
    scores, keys = _product(first), _axis(edit, node) - len(shape_of(node))
    names = {letter: letter for letter in "nwh"} | {"s": "d", "x": "i", "y": "i", scores.axes[keys]: "j"}
    scores = scores.renamed(names).beginning_with("i")
    gathered = _product(last).beginning_with("", weights)
    at_weights = _reshaped(scores.axes, shape_of(first), shape_of(weights))
    renames = dict(zip(gathered.left_axes, at_weights, strict=True))
    gathered = gathered.renamed({"x": "e", "y": "e"} | renames)
    if "j" in gathered.axes or "j" not in scores.right_axes or gathered.right is weights:
        raise _UnlikeError(_WRITE)
    ones = torch.ones(shape_of(first), dtype=torch.float64)
    at_zero, at_one = (_run(edit, values_of(node)[0], {first: value * ones}) for value in (0, 1))
    both = at_zero.isfinite() & (at_zero > at_zero.amax(keys, keepdim=True) + _FAR_BELOW)
    slopes = (at_one - at_zero).where(both, torch.nan).reshape(shape_of(first))
    scales = _arranged(edit, slopes, scores.axes, "hnij").flatten(1).nanmedian(1).values
    scale = float(scales[0]) if torch.allclose(scales, scales[0], rtol=1e-6) else scales[:, None, None].to(edit.like)
    parts = scores.left, scores.right, gathered.right
    axes = scores.left_axes, scores.right_axes, gathered.right_axes, gathered.axes
    return _Attention(last, parts, axes, scale, _constants(edit, at_zero.reshape(shape_of(first)), scores.axes))


def _constants(edit: GraphEditor, values: Tensor, axes: str) -> Tensor | None:
    """Return constants as (w h, i, j), minus infinity where a pair is masked; None if they are zero."""
    whole = _arranged(edit, values, axes, "nhij")
    if not torch.equal(whole[:1].expand_as(whole), whole):
        raise _UnlikeError(_PUBLIC)
    constants, largest = whole[0].to(edit.like), whole[0].amax(-1, keepdim=True)
    if not largest.isfinite().all() or constants.isnan().any():
        raise _UnlikeError("leave each query a key that is not masked, and let constants be finite or minus infinity")
    constants = constants.masked_fill(constants <= largest + _FAR_BELOW, -math.inf)
    return constants if constants.any() else None


def _arranged(edit: GraphEditor, values: Tensor, axes: str, order: str) -> Tensor:
    """Return values with their axes in an order that names images apart, and all heads of windows as heads."""
    values, axes = values.unflatten(axes.index("n"), _apart(edit, axes)), _named_apart(axes)
    values = values.permute([axes.index(letter) for letter in _with_windows(order, axes)])
    return values.flatten(order.index("h"), order.index("h") + 1) if "h" in axes else values


def _apart(edit: GraphEditor, axes: str) -> tuple[int, ...]:
    """Return the sizes of the axes that one of images, and of windows or heads, has in it."""
    return (_images(edit),) if "w" in axes else (_images(edit), -1)


def _named_apart(axes: str) -> str:
    return axes if "w" in axes else axes.replace("n", "nw")


def _with_windows(order: str, axes: str) -> str:
    """Return an order of axes in which windows stand before heads, or for them."""
    return order.replace("h", "wh" if "h" in axes else "w")


def _check(edit: GraphEditor, attention: _Attention) -> None:
    """Raise unless the graph computes this attention of random queries, keys and values, small and large."""
    random, orders = torch.Generator().manual_seed(0), ("nhid", "nhjd", "nhje", "nhie")
    for size in (1, 8):
        inputs = {part: size * torch.randn(shape_of(part), generator=random).to(edit.like) for part in attention.parts}
        ours = zip(attention.parts, attention.axes[:3], orders[:3], strict=True)
        q, k, v = (_arranged(edit, inputs[part], axes, order) for part, axes, order in ours)
        computed = softmax_attention(q, k, v, attention.scale, attention.constants)
        expected = _arranged(edit, _run(edit, attention.last, inputs), attention.axes[3], orders[3])
        finite = (
            bool(torch.as_tensor(attention.scale).any()) and computed.isfinite().all() and expected.isfinite().all()
        )
        if not finite or not agree(computed.contiguous(), expected.contiguous()):
            raise _UnlikeError(_WRITE)


def _put(edit: GraphEditor, attention: _Attention) -> None:
    """Put a module in the place of an attention, between moves to tokens and back."""
    last, constants, key_slice = attention.last, attention.constants, None
    if constants is not None and (unmasked := (~constants.isinf().all(0).all(0)).nonzero().flatten()).numel():
        key_slice = _as_slice(unmasked) if len(unmasked) < constants.shape[-1] else None
        constants = constants[..., key_slice] if key_slice else constants
    query, key, value = attention.parts
    scale, of_heads = (1.0, attention.scale) if isinstance(attention.scale, Tensor) else (attention.scale, None)
    if len({query, key, value}) == 3:
        query, of_query = _without_factor(edit, query)
        key, of_key = _without_factor(edit, key)
        scale *= of_query * of_key
    orders = zip((query, key, value), attention.axes, ("nihd", "njhd", "njhe"), strict=False)
    values = [_tokens(edit, *part) for part in orders]
    if key_slice:
        values[1:] = [move_behind(part, operator.getitem, (slice(None), key_slice)) for part in values[1:]]
    (images, tokens, width), heads = shape_of(values[0]), _heads(edit, attention)
    if of_heads is not None:
        factors = _factors_of_channels(of_heads.flatten().repeat_interleave(width // heads))
        values[0] = edit.insert(values[0], edit.free(f"{last.name}_scales"), factors, (values[0],))
    usual = math.isclose(scale, (heads / width) ** 0.5, rel_tol=1e-6)
    some = constants if constants is not None and constants.any() else None
    module = SoftmaxAttention(heads, None if usual else scale, some)
    owner = _owner(last)
    assert last.prev is not None
    node = edit.insert(last.prev, edit.free(f"{owner[0]}.attention".lstrip(".")), module, tuple(values))
    node.meta = {"shape": (images, tokens, shape_of(values[2])[-1]), _OWNER: (owner[0] or last.name, owner[1])}
    edit.put_for(last, _from_tokens(edit, node, attention))


def _factors_of_channels(factors: Tensor) -> TokenBatchNorm:
    """Return the norm that multiplies channels of tokens by constants, exactly in any precision."""
    norm = TokenBatchNorm(len(factors), eps=2.0**-17).to(factors)
    with torch.no_grad():
        norm.weight.copy_(factors)
        norm.running_var.fill_(1 - norm.eps)  # type: ignore[union-attr]
    return norm


def _as_slice(places: Tensor) -> slice | None:
    """Return the slice that takes places, None if there is none."""
    first, last = int(places[0]), int(places[-1])
    step = (last - first) // (len(places) - 1) if len(places) > 1 else 1
    return slice(first, last + 1, step) if places.tolist() == list(range(first, last + 1, step)) else None


def _tokens(edit: GraphEditor, node: fx.Node, axes: str, order: str) -> fx.Node:
    """Return tokens (N, T, w h d) of a value."""
    node, axes = move_behind(node, "unflatten", axes.index("n"), _apart(edit, axes)), _named_apart(axes)
    order = _with_windows(order, axes)
    return move_behind(move_behind(node, "permute", [axes.index(letter) for letter in order]), "flatten", 2)


def _from_tokens(edit: GraphEditor, node: fx.Node, attention: _Attention) -> fx.Node:
    """Return a value with its axes as they were, of tokens (N, T, w h e)."""
    shape, axes = shape_of(attention.last), attention.axes[3]
    whole, first = _named_apart(axes), axes.index("n")
    sizes = dict(zip(whole, torch.empty(shape, device="meta").unflatten(first, _apart(edit, axes)).shape, strict=True))
    order = _with_windows("nihe", whole)
    by_head = move_behind(node, "unflatten", -1, [sizes[letter] for letter in order[2:]])
    moved = move_behind(by_head, "permute", [order.index(letter) for letter in whole])
    return moved if whole == axes else move_behind(moved, "flatten", first, first + 1)


def _without_factor(edit: GraphEditor, node: fx.Node) -> tuple[fx.Node, float]:
    """Take numbers that a value is multiplied by out of the graph; return the value without them, and their product."""
    factor, at = 1.0, node
    while len(at.users) == 1 and kind_of(edit.graph, at) in ("move", "nothing", "numbers", "product"):
        sources = values_of(at)
        if len(sources) != 1:
            break
        (source,) = sources
        if kind_of(edit.graph, at) in ("numbers", "product"):
            at_zero, at_one = (
                _run(edit, at, {source: edit.like.new_full(shape_of(source), value)}) for value in (0, 1)
            )
            if (
                at_zero.shape != shape_of(source)
                or at_zero.any()
                or (at_one != at_one.flatten()[0]).any()
                or not at_one.any()
            ):
                break
            factor *= float(at_one.flatten()[0])
            node = source if at is node else node
            edit.put_for(at, source)
        at = source
    return node, factor


def _heads(edit: GraphEditor, attention: _Attention) -> int:
    sizes = dict(zip(attention.axes[0], shape_of(attention.parts[0]), strict=True))
    return sizes["n"] // _images(edit) * sizes.get("w", 1) * sizes.get("h", 1)


def _images(edit: GraphEditor) -> int:
    return shape_of(next(node for node in edit.graph.graph.nodes if node.op == "placeholder"))[0]


def _owner(node: fx.Node) -> tuple[str, str]:
    """Return the path of the module whose forward an operation is in, and its class."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    path, kind = stack[-1] if stack else ("", nn.Module)
    return path, "attention" if not stack else "MultiheadAttention" if kind is Multihead else kind.__name__


def _is_softmax(edit: GraphEditor, node: fx.Node) -> bool:
    return node.target in _SOFTMAX or isinstance(edit.module(node), nn.Softmax)


def softmax_axis(edit: GraphEditor, node: fx.Node) -> int | None:
    """Return the axis of a softmax, None for any other operation."""
    return _axis(edit, node) if _is_softmax(edit, node) else None


def _axis(edit: GraphEditor, node: fx.Node) -> int:
    """Return the axis that a softmax is over."""
    module = edit.module(node)
    dim = module.dim if isinstance(module, nn.Softmax) else node.kwargs.get("dim", (*node.args, None)[1])
    if not isinstance(dim, int):
        raise _UnlikeError("name the axis of each softmax")
    return dim % len(shape_of(node))


def _is_product(node: fx.Node) -> bool:
    return node.target in (*_PRODUCTS, *_EINSUM) and all("constant" not in factor.meta for factor in _factors(node))


def _factors(node: fx.Node) -> list[fx.Node]:
    """Return the values that a product multiplies, in order; one may be there twice."""
    factors: list[fx.Node] = []
    map_arg((node.args, node.kwargs), factors.append)
    return factors


def _scores_before(node: fx.Node) -> fx.Node | None:
    """Return the product of two values behind a softmax's argument, which adds but constants; None without one."""
    while not _is_product(node):
        sources = values_of(node)
        if len(sources) != 1 or not shape_of(sources[0]):
            return None
        (node,) = sources
    return node


def _reader(node: fx.Node) -> fx.Node:
    """Return the one node that reads another."""
    if len(node.users) != 1:
        raise _UnlikeError("use the weights of attention for nothing but its values")
    return next(iter(node.users))


def _product(node: fx.Node) -> _Product:
    """Return a product of two values with the letters of its axes."""
    factors = _factors(node)
    shapes = [shape_of(term) for term in (*factors, node)]
    if len(factors) != 2 or len({len(shape) for shape in shapes}) != 1 or not 3 <= len(shapes[0]) <= 5:
        raise _UnlikeError(_WRITE)
    axes = ["abc"[: len(shapes[0]) - 2] + pair for pair in ("xs", "sy", "xy")]
    if node.target in _EINSUM:
        equation = str(node.args[0]).replace(" ", "").replace("->", ",").replace("...", "AB")
        terms = zip(equation.split(","), shapes, strict=True)
        axes = [term if len(term) == len(shape) else term.replace("B", "") for term, shape in terms]
    left, right, result = axes
    shared = [letter for letter in result if letter in left and letter in right]
    summed, alone = set(left) & set(right) - set(result), set(result) - set(shared)
    sizes = [len(shared), len(summed), len(alone)]
    if sizes not in ([1, 1, 2], [2, 1, 2], [3, 1, 2]) or {len(left), len(right)} != {len(shared) + 2}:
        raise _UnlikeError(_WRITE)
    names = dict(zip(shared, ("n", "nh", "nwh")[len(shared) - 1], strict=True)) | {summed.pop(): "s"}
    names |= {letter: "x" if letter in left else "y" for letter in alone}
    return _Product(factors[0], factors[1], left, right, result).renamed(names)


def _reshaped(axes: str, before: tuple[int, ...], after: tuple[int, ...]) -> str:
    """Return the axes of a value of another shape, where heads and images may have become one axis or two."""
    if before == after:
        return axes
    if "h" not in axes and axes[0] == "n" and before[1:] == after[2:] and before[0] == math.prod(after[:2]):
        return axes.replace("n", "nh")
    if axes[:2] == "nh" and before[2:] == after[1:] and after[0] == math.prod(before[:2]):
        return axes.replace("nh", "n")
    raise _UnlikeError(_WRITE)


@torch.no_grad()
def _run(edit: GraphEditor, target: fx.Node, inputs: dict[fx.Node, Tensor]) -> Tensor:
    """Return the value of a node computed from the values of some others."""
    values: dict[fx.Node, Any] = dict(inputs)

    def value_of(node: fx.Node) -> Any:
        if node not in values:
            if "constant" in node.meta:
                values[node] = node.meta["constant"]
            elif node.op == "placeholder":
                raise _UnlikeError(_WRITE)
            else:
                arguments: Any = map_arg((node.args, node.kwargs), value_of)
                values[node] = getattr(fx.Interpreter(edit.graph), node.op)(node.target, *arguments)
        return values[node]

    return value_of(target)
