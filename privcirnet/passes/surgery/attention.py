"""Attention of others becomes polynomial or softmax attention between the same linear layers, before it is traced.

Two forms are known: timm's, with one linear layer for queries, keys and values, and torch's MultiheadAttention.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from privcirnet.errors import RuleError
from privcirnet.nn.agreement import agree
from privcirnet.nn.attention import PolynomialAttention, SoftmaxAttention
from privcirnet.nn.graph import evaluating
from privcirnet.passes.surgery.changes import TRAIN, Change


class SelfAttention(nn.Module):
    """Linear layers around an attention, under the names that they had.

    Args:
        layers: queries, keys and values as one layer, and the projection behind the attention, by name.
        attention: between them.
        pair: return (result, None), as torch's MultiheadAttention does.
    """

    def __init__(self, layers: dict[str, nn.Linear], attention: nn.Module, pair: bool) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.attention, self.names, self.pair = attention, tuple(layers), pair

    def forward(self, x: Tensor, *others: Any, **options: Any) -> Any:
        """Return what the attention makes of tokens: (N, T, C), or that and None.

        Args:
            x: (N, T, C).
            options: those of softmax attention, without effect.
        """
        first, last = (self.get_submodule(name) for name in self.names)
        result = last(self.attention(first(x)))
        return (result, None) if self.pair else result


@contextmanager
def attentions_replaced(model: nn.Module, images: Tensor, own: bool = False) -> Iterator[list[Change]]:
    """Put polynomial attentions in place of a network's softmax attentions; take them back if what follows fails.

    Args:
        model: a network; changed in place.
        own: they stay softmax attentions, but between layers of their own.

    Yields:
        What was replaced.
    """
    found = {name: module for name, module in model.named_modules() if name and _is_known(module)}
    counts = _tokens(model, found, images) if found else {}
    changes: list[Change] = []
    before = _value(model, images) if own and counts else None
    try:
        for name, tokens in counts.items():
            made = _replacement(found[name], tokens, own)
            model.set_submodule(name, made)
            after, effect = type(made.attention).__name__, "" if own else TRAIN
            changes.append(Change(name, type(found[name]).__name__, after, effect))
        if before is not None and not agree(_value(model, images), before):
            rule, got = "softmax attention must be softmax(q k^T / sqrt(d)) v", ", ".join(counts)
            raise RuleError(rule, got=f"another at {got}", remedy='replace it (activation="aespa")')
        yield changes
    except BaseException:
        for change in changes:
            model.set_submodule(change.path, found[change.path])
        raise


def _is_known(module: nn.Module) -> bool:
    if isinstance(module, nn.MultiheadAttention):
        return module.in_proj_weight is not None and module.bias_k is None and module.batch_first
    if type(module).__name__ != "Attention" or not hasattr(module, "num_heads"):
        return False
    children = dict(module.named_children())
    qkv, proj = children.pop("qkv", None), children.pop("proj", None)
    if not isinstance(qkv, nn.Linear) or not isinstance(proj, nn.Linear):
        return False
    plain = all(isinstance(child, nn.Identity | nn.Dropout) for child in children.values())
    return plain and qkv.out_features == 3 * qkv.in_features == 3 * proj.in_features


def _tokens(model: nn.Module, attentions: dict[str, nn.Module], images: Tensor) -> dict[str, int]:
    """Return how many tokens each attention reads, (N, T, C); of those alone that are called with such."""
    counts: dict[str, int] = {}

    def look(name: str) -> Any:
        def hook(_: nn.Module, given: tuple[Any, ...]) -> None:
            alone = all(each is given[0] for each in given[1:] if isinstance(each, Tensor))
            if given and isinstance(given[0], Tensor) and given[0].ndim == 3 and alone:
                counts[name] = given[0].shape[1]

        return hook

    handles = [module.register_forward_pre_hook(look(name)) for name, module in attentions.items()]
    try:
        with evaluating(model), torch.no_grad():
            model(images)
    except Exception:
        return {}  # tracing says what is wrong with them
    finally:
        for handle in handles:
            handle.remove()
    return counts


@torch.no_grad()
def _value(model: nn.Module, images: Tensor) -> Tensor:
    with evaluating(model):
        return model(images.clone())


def _replacement(module: nn.Module, tokens: int, own: bool) -> SelfAttention:
    pair = isinstance(module, nn.MultiheadAttention)
    first, last, heads = _joined(module) if pair else (module.qkv, module.proj, module.num_heads)
    layers = {"qkv": first, "out_proj" if pair else "proj": last}
    polynomial = PolynomialAttention(first.in_features, heads, tokens)  # type: ignore[arg-type]
    attention = SoftmaxAttention(heads) if own else polynomial.to(first.weight)  # type: ignore[arg-type]
    return SelfAttention(layers, attention, pair).train(module.training)  # type: ignore[arg-type]


def _joined(module: nn.MultiheadAttention) -> tuple[nn.Linear, nn.Linear, int]:
    """Queries, keys and values as one layer with the module's own weights, the layer behind, the heads."""
    width, weight, bias = module.embed_dim, module.in_proj_weight, module.in_proj_bias
    assert weight is not None
    qkv = nn.Linear(width, 3 * width, bias=bias is not None)
    qkv.weight = weight
    if bias is not None:
        qkv.bias = bias
    return qkv, module.out_proj, module.num_heads
