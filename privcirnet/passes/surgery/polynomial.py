"""Conversion of a network of torch's operations, in place, to those that run encrypted: polynomials, or exact steps.

The network is traced at one image size, and each operation is replaced by a module that encrypted inference knows.
Layers and norms stay the same objects under their own names, so its state still loads.

Average pools of a map take side x side values each, without overlap, so that their sums are sums of shares. A max pool
becomes such an average. The result's forward no longer depends on batch or image size.
"""

import copy
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor, fx, nn

from privcirnet.artifact.records import REPLACEMENTS
from privcirnet.errors import RuleError, listed
from privcirnet.nn.activations import Aespa1d, Aespa2d, Square
from privcirnet.nn.agreement import Guard, check_traced, returned, some_of
from privcirnet.nn.attention import SoftmaxAttention
from privcirnet.nn.checks import check_images, check_module, understood
from privcirnet.nn.example import FUSED, IMAGE
from privcirnet.nn.graph import evaluating, is_sum
from privcirnet.nn.neighbours import readers, summands, uses
from privcirnet.nn.norm import is_frozen_norm
from privcirnet.nn.quantizers import check_unquantized
from privcirnet.nn.supported_modules import kind_of, named
from privcirnet.passes.convert import share_by_blocks_
from privcirnet.passes.difference import compared, logits_of_some
from privcirnet.passes.multihead import multiheads_replaced
from privcirnet.passes.shape_tracing import trace_at
from privcirnet.passes.surgery import arithmetic, functions, norms, padding, resampling
from privcirnet.passes.surgery.attention import join_parts, read_attentions, settle_attention, softmax_axis
from privcirnet.passes.surgery.edit import (
    TRAIN,
    WITHOUT_SOFTMAX,
    GraphEditor,
    Replacement,
    path_of,
    shape_of,
    values_of,
)
from privcirnet.passes.surgery.layout import channels_last, put_images_first, settle_moves
from privcirnet.passes.surgery.signals import as_maps, joined
from privcirnet.passes.surgery.windows import other_size, pool

ACTIVATIONS = (*REPLACEMENTS, "own")
DECOMPOSITIONS: dict[str, Callable[[GraphEditor, fx.Node], list[fx.Node]]] = {
    "stack": arithmetic.stack,
    "gated": functions.gated,
    "function": functions.as_modules,
    "normalized": functions.normalized,
}
"""How an operation of a kind is taken apart into others, which are settled in its place."""
SUBSTITUTIONS: dict[str, Callable[[GraphEditor, fx.Node], None]] = {
    "nothing": GraphEditor.skip,
    "layer norm": norms.layer_norm,
    "gate": norms.gate,
    "average": partial(pool, average=True),
    "maximum": partial(pool, average=False),
    "pad": arithmetic.pad,
    "roll": padding.pad,
    "upsample": resampling.upsample,
    "transposed layer": padding.transpose,
    "sum": arithmetic.add,
    "difference": arithmetic.add,
    "product": arithmetic.multiply,
    "numbers": arithmetic.divide,
    "square": arithmetic.square,
    "concat": arithmetic.concat,
}
"""How an operation of a kind is replaced by modules that run encrypted."""


def polynomial_(
    model: nn.Module, images: Tensor, activation: str | Mapping[str, str] = "aespa"
) -> tuple[Replacement, ...]:
    r"""Replace all operations of a network that are no polynomials, in place; without a form for all, nothing changes.

    Activations become AESPA or squares, softmax attention polynomial attention, layer norms batch norms, max pools
    averages. Mere moves of values cost nothing. docs/networks.md has the whole list. The network becomes its own
    torch.fx graph, for images of this size only; its layers stay the same objects under their names. Fine-tune it
    afterwards (``recipe=replace`` does). A network that keeps its activations needs none of this.

    Args:
        model: a network on images, with any weights.
        images: some as the network reads them, (N, C, H, W) or (N, F). The network is made for their size, and
            replacements that should compute the same are compared on two of them.
        activation: "aespa", "square" or "identity", which is none. By module name, as a search chooses them: all else
            stays.

    Returns:
        Replacements, in the order of the forward.

    Warns:
        UserWarning: more than a tenth of 16 or more images have another class than before, until it is trained.

    Raises:
        RuleError: the network or the images are none, it cannot be traced, something has no replacement, the activation
            is unknown or that of a module that is none, or the network computes something that its modules and
            operations do not say.

    >>> import torch
    >>> network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    >>> print(*polynomial_(network, torch.zeros(1, 3, 6, 6)), sep="\n")
    1: ReLU -> Aespa2d (values differ: fine-tune, best with the original network as teacher)
    2: AdaptiveAvgPool2d -> AvgPool2d(4)
    """
    check_activation(activation)
    check_module(model)
    check_unquantized(model, "a network must get its polynomials before it is quantized")
    check_images(model, images)
    sample = some_of(images)
    if isinstance(activation, Mapping):
        exact = _edited(model, sample, {}, "own")
        edit = _edited(exact.graph, sample, activation, "own")
        changes = *exact.changes, *edit.changes
    else:
        edit = _edited(model, sample, {}, activation)
        changes = tuple(edit.changes)
    edit.graph.meta.pop(FUSED, None)
    if any(change.effect == TRAIN for change in changes):
        lost = compared(logits_of_some(edit.graph, images), logits_of_some(model, images))
        if lost and lost.large:
            warnings.warn(f"{lost}; train it now, by fit or a loop of your own", stacklevel=2)
    _become_(model, edit.graph)
    return changes


def exact_graph(model: nn.Module, images: Tensor) -> tuple[fx.GraphModule, tuple[Replacement, ...]]:
    """Return a network as a graph of modules that run exactly on encrypted images, and the replacements made.

    Args:
        model: network in evaluation mode; left as it was, but its modules are the graph's.
        images: two of those that it reads, (2, C, H, W) or (2, F); the graph is made for their size.

    Raises:
        RuleError: see :func:`polynomial_`.
    """
    edit = _edited(model, images, {}, "own")
    return edit.graph, tuple(edit.changes)


def exact_copy(model: nn.Module, images: Tensor) -> fx.GraphModule:
    """Return a copy of a network whose operations are modules that run exactly, each once; it computes the same.

    Args:
        model: network; left as it was.
        images: see :func:`polynomial_`.

    Raises:
        RuleError: see :func:`polynomial_`.
    """
    check_module(model)
    check_images(model, images)
    return exact_graph(copy.deepcopy(model).eval(), some_of(images))[0]


def _edited(model: nn.Module, images: Tensor, activations: Mapping[str, str], default: str) -> GraphEditor:
    """Return a network as a graph, whose activations become those chosen by name, and all others ``default``."""
    with understood("polynomial_"), multiheads_replaced(model, images), evaluating(model):
        edit, refused = _edit(_traced(model, images), partial(other_size, model, images), exact=default == "own")
        edit.values, guard = check_traced(edit.graph, model, images), Guard(edit.graph, images)
        edit.noisy = guard.values
        _check_chosen(edit, activations)
        for node in list(edit.graph.graph.nodes):
            if node not in refused:
                with edit.visiting(node):
                    _visit(edit, node, activations.get(path_of(node), default))
        settle_moves(edit)
        edit.check()
        join_parts(edit)
        norms.put_unfoldable_behind_layers(edit)
        _put_layers_before_activations(edit)
        edit.finish()
        _share_by_blocks(edit)
        _check_exact(edit, guard)
    edit.changes = joined(edit.changes)
    edit.graph.meta[IMAGE] = tuple(images.shape[1:])
    return edit


def _edit(graph: fx.GraphModule, size: Callable[[], str], *, exact: bool) -> tuple[GraphEditor, set[fx.Node]]:
    """Return a network with signals as maps, attentions as modules and images first, and other softmaxes."""
    first = GraphEditor(graph, size, exact=exact)
    as_maps(first)
    changes = tuple(first.changes)
    refused = read_attentions(first)
    put_images_first(first)
    edit = GraphEditor(graph, size, exact=exact)
    edit.problems += first.problems
    edit.changes += changes
    return edit, refused


def _share_by_blocks(edit: GraphEditor) -> None:
    """Share norms and AESPA beside circulant layers by blocks; report the old ones, because their values change."""
    before = {name: type(module).__name__ for name, module in edit.graph.named_modules()}
    shared = share_by_blocks_(edit.graph)
    for node in edit.graph.graph.nodes:
        name = path_of(node)
        if name in shared and node.name not in edit.inexact:
            edit.inexact.add(node.name)
            after = f"{type(edit.module(node)).__name__} shared by blocks of {shared[name]}"
            edit.changes.append(Replacement(name, before[name], after, TRAIN))


def _traced(model: nn.Module, images: Tensor) -> fx.GraphModule:
    """Return the network as a graph; raise with the type or the size that would do if another one helps."""
    try:
        return trace_at(model, images)
    except RuleError as error:
        like = next(model.parameters(), images).dtype
        remedy = other_size(model, images) if images.dtype == like else f"give images.to({like})"
        if not remedy:
            raise
        raise RuleError(error.rule, got=error.got, remedy=remedy) from error


def _check_exact(edit: GraphEditor, guard: Guard) -> None:
    """Raise unless each node computes the same as before; reported changes need only read the same as before."""
    original = edit.original | {returned(edit.graph).name: edit.returned}
    inexact = {name: edit.read.get(name) for name in edit.inexact}
    if first := guard.first_other(edit.graph, original, inexact):
        rule = "a change that is exact must leave the network's values as they were"
        raise RuleError(rule, got=f"other values from {first!r} on", remedy="report this network")


def check_activation(activation: str | Mapping[str, str]) -> None:
    """Raise unless an activation is one that :func:`polynomial_` puts in place of others, or all of several are."""
    for name in activation.values() if isinstance(activation, Mapping) else (activation,):
        if name not in ACTIVATIONS:
            supported = ", ".join(ACTIVATIONS)
            raise RuleError(
                "the activation must be a polynomial, or the network's own",
                got=repr(name),
                remedy=f"use one of {supported}",
            )


def _check_chosen(edit: GraphEditor, activations: Mapping[str, str]) -> None:
    """Raise unless each name is that of an activation that is a module of its own."""
    nodes = [node for node in edit.graph.graph.nodes if kind_of(edit.graph, node) == "activation"]
    calls = Counter(node.target for node in nodes if node.op == "call_module")
    if wrong := [name for name in activations if calls[name] != 1]:
        candidates = ", ".join(str(name) for name, count in calls.items() if count == 1) or "none"
        remedy = f"name some of {candidates}"
        raise RuleError("an activation must be a module that runs once", got=listed(wrong), remedy=remedy)


def _visit(edit: GraphEditor, node: fx.Node, activation: str) -> None:
    """Replace one node, or note why it cannot be."""
    kind = kind_of(edit.graph, node)
    if "constant" in node.meta:
        return
    if kind == "reduction" or named(edit.graph, node) == "mean":
        settled = arithmetic.settle_reduction(edit, node)
        if settled is None:
            return
        node, kind = settled, kind_of(edit.graph, settled)
    if isinstance(edit.module(node), nn.Conv2d):
        _settle_convolution(edit, node, kind)
        return
    if isinstance(edit.module(node), SoftmaxAttention):
        settle_attention(edit, node, own=activation == "own")
    if kind in ("kept", "layer", "move"):
        return
    if kind in DECOMPOSITIONS:
        for part in DECOMPOSITIONS[kind](edit, node):
            _visit(edit, part, activation)
        return
    inside = norms.split(edit, node) if kind in ("norm", "layer norm") else []
    _replace(edit, node, kind, activation)
    for appended in inside:
        _visit(edit, appended, activation)


def _settle_convolution(edit: GraphEditor, node: fx.Node, kind: str) -> None:
    """Let a convolution be torch's own, with zeros around its map."""
    if kind != "layer":
        padding.plain_convolution(edit, node)
    padding.pad_before(edit, node)


def _replace(edit: GraphEditor, node: fx.Node, kind: str, activation: str) -> None:
    """Put a module that runs encrypted in the place of an operation, or note why there is none."""
    if activation == "own" and kind in ("activation", "gate", "maximum") and len(values_of(node)) == 1:
        functions.keep(edit, node)
    elif activation == "own" and kind == "layer norm":
        norms.keep_layer_norm(edit, node)
    elif kind in SUBSTITUTIONS:
        SUBSTITUTIONS[kind](edit, node)
    elif kind == "activation" and len(values_of(node)) == 1:
        edit.replace(node, _activation(edit, node, activation), TRAIN)
    elif isinstance(edit.module(node), nn.BatchNorm1d) and len(shape_of(node)) != 2:
        edit.cannot(node, "let a BatchNorm1d work on vectors (N, C)")
    elif kind == "norm":
        norms.put_behind_layer(edit, node)
    elif _is_last_softmax(edit, node):
        edit.cannot(node, f"use {WITHOUT_SOFTMAX}")
    elif edit.exact and (axis := softmax_axis(edit, node)) is not None:
        functions.softmax(edit, node, axis)
    else:
        edit.cannot(node, "write it with layers, norms, sums, averages and activations")


def _is_last_softmax(edit: GraphEditor, node: fx.Node) -> bool:
    """Return whether a node makes probabilities of logits, or their logarithms, that the network returns."""
    name = getattr(node.target, "__name__", node.target)  # of a function, or a method's
    is_softmax = isinstance(edit.module(node), nn.Softmax | nn.LogSoftmax) or name in ("softmax", "log_softmax")
    return is_softmax and all(user.op == "output" for user in node.users)


_WITHOUT_CHANNELS: dict[str, type[nn.Module]] = {"square": Square, "identity": nn.Identity}


def _activation(edit: GraphEditor, node: fx.Node, activation: str) -> nn.Module:
    if activation in _WITHOUT_CHANNELS:
        return _WITHOUT_CHANNELS[activation]()
    last = channels_last(edit, node)
    return Aespa1d(shape_of(node)[-1]) if last else Aespa2d(shape_of(node)[1])


def _put_layers_before_activations(edit: GraphEditor) -> None:
    """Give activations whose scales and shifts fold into no layer a convolution of their own."""
    for node in reversed(edit.graph.graph.nodes):
        if not isinstance(edit.module(node), Aespa2d):
            continue
        terms = summands(edit.graph, node)
        alone = all(len(source.users) == 1 for source in (*terms.layers, *terms.between))
        if terms.others or not terms.layers or not alone:
            edit.put_layer_before(node, node.all_input_nodes[0], "Aespa2d")
            continue
        for total in filter(is_sum, terms.between):
            for term in list(total.all_input_nodes):
                square = _square_behind(edit, term)
                allowed = {*terms.between, *readers(edit.graph, square)} if square else set[fx.Node]()
                if square and not allowed.issuperset(uses(edit.graph, square)):
                    edit.put_layer_before(total, term, "a summand")


def _square_behind(edit: GraphEditor, node: fx.Node) -> fx.Node | None:
    """Return the activation that a summand is, at most pooled."""
    while isinstance(edit.module(node), nn.AvgPool2d):
        node = node.all_input_nodes[0]
    return node if isinstance(edit.module(node), Aespa2d) else None


def _become_(model: nn.Module, graph: fx.GraphModule) -> None:
    """Turn a network into its graph, with its modes and its plain attributes."""
    modes = {name: module.training and not is_frozen_norm(module) for name, module in model.named_modules()}
    for name, module in graph.named_modules():
        module.training = modes.get(name, model.training)
    attributes = {
        name: value for name, value in vars(model).items() if not name.startswith("_")
    }  # as timm's pretrained_cfg
    model.__class__ = graph.__class__  # type: ignore[assignment]
    model.__dict__ = attributes | graph.__dict__
