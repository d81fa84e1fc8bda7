"""torch's MultiheadAttention as linear layers around an attention that can be traced."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privcirnet.errors import RuleError
from privcirnet.nn.agreement import agree
from privcirnet.nn.graph import evaluating

_RULE = "a multi-head attention must be over the tokens of each image"


class Multihead(nn.Module):
    """The layers of an nn.MultiheadAttention as linear layers of the same parameters, around an attention.

    One layer gives queries, keys and values if they are of one value. Torch's transformer layers may hold it in place
    of an nn.MultiheadAttention; they then take their slow path.

    Args:
        module: the attention.
    """

    in_proj_weight = None
    in_proj_bias = None

    def __init__(self, module: nn.MultiheadAttention) -> None:
        super().__init__()
        self.num_heads, self.batch_first = module.num_heads, module.batch_first
        self.add_zero_attn = module.add_zero_attn
        self._qkv_same_embed_dim = module._qkv_same_embed_dim
        weight, bias = module.in_proj_weight, module.in_proj_bias
        biases = [None] * 3 if bias is None else [nn.Parameter(part.detach().clone()) for part in bias.chunk(3)]
        if weight is None:
            weights = [module.q_proj_weight, module.k_proj_weight, module.v_proj_weight]
        else:
            weights = [nn.Parameter(part.detach().clone()) for part in weight.chunk(3)]
            self.qkv = _layer(weight, bias)
        self.q, self.k, self.v = (_layer(*part) for part in zip(weights, biases, strict=True))
        self.bias_k, self.bias_v, self.out_proj = module.bias_k, module.bias_v, module.out_proj
        self.train(module.training)

    def forward(  # noqa: PLR0913, PLR0917
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the result and the weights, as nn.MultiheadAttention does.

        Args:
            is_causal: whether ``attn_mask`` is causal; not used.
        """
        if any(len(tensor.shape) != 3 for tensor in (query, key, value)):
            got, remedy = f"values of {len(query.shape)} axes", "give it values (N, T, C)"
            raise RuleError(_RULE, got=got, remedy=remedy)
        if query is key and key is value and self._qkv_same_embed_dim:
            q, k, v = self.qkv(self._images_first(query)).chunk(3, -1)
        else:
            inputs = (self._images_first(tensor) for tensor in (query, key, value))
            q, k, v = (layer(tensor) for layer, tensor in zip((self.q, self.k, self.v), inputs, strict=True))
        constants = _masks(attn_mask, key_padding_mask, q)
        q, k, v, constants = self._with_more_keys(q, k, v, constants)
        q, k, v = (tensor.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for tensor in (q, k, v))
        weights: Tensor | None = None
        if need_weights:
            scores: Tensor = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
            weights = (scores if constants is None else scores + constants).softmax(-1)
            result = weights @ v
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            result = F.scaled_dot_product_attention(q, k, v, constants)
        result = self.out_proj(result.transpose(1, 2).flatten(2))
        return result if self.batch_first else result.transpose(0, 1), weights

    def _images_first(self, x: Tensor) -> Tensor:
        return x if self.batch_first else x.transpose(0, 1)

    def _with_more_keys(
        self, q: Tensor, k: Tensor, v: Tensor, constants: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Put the additional keys of a module in front; their order does not matter."""
        more: list[tuple[Tensor, Tensor]] = []
        if self.bias_k is not None and self.bias_v is not None:
            more.append((self.bias_k, self.bias_v))
        if self.add_zero_attn:
            zeros = self.out_proj.weight.new_zeros(1, 1, k.shape[-1])
            more.append((zeros, zeros))
        for key, value in more:
            k = torch.cat([key.expand(len(k), -1, -1), k], 1)
            v = torch.cat([value.expand(len(v), -1, -1), v], 1)
            constants = None if constants is None else F.pad(constants, (1, 0))
        return q, k, v, constants


def _layer(weight: nn.Parameter, bias: nn.Parameter | None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = weight
    if bias is not None:
        layer.bias = bias
    return layer


def _masks(mask: Tensor | None, padding: Tensor | None, like: Tensor) -> Tensor | None:
    """Return the sum that masks add to scores (N, h, T, K); None without any."""
    added: list[Tensor] = []
    if mask is not None:
        pairs = _added(mask, like)
        added.append(pairs.unflatten(0, (len(like), -1)) if pairs.ndim == 3 else pairs)
    if padding is not None:
        added.append(_added(padding, like)[:, None, None])
    return sum(added[1:], added[0]) if added else None


def _added(mask: Tensor, like: Tensor) -> Tensor:
    """Return the summand of a mask for scores: minus infinity where a Boolean one is true."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=like.dtype, device=mask.device).masked_fill(mask, float("-inf"))


@contextmanager
def multiheads_replaced(model: nn.Module, images: Tensor) -> Iterator[None]:
    """Put :class:`Multihead` in place of each nn.MultiheadAttention; take them back if what follows fails.

    Args:
        model: a network; changed in place.
        images: some images that it takes, to record the arguments of its attentions.

    Yields:
        Nothing; the network is replaced meanwhile.
    """
    modules = {
        name: module for name, module in model.named_modules() if name and isinstance(module, nn.MultiheadAttention)
    }
    calls = _calls(model, modules, images) if modules else {}
    try:
        for name, (arguments, options) in calls.items():
            _check(modules[name], name, arguments, options)
            model.set_submodule(name, Multihead(modules[name]))
        yield
    except BaseException:
        for name in calls:
            model.set_submodule(name, modules[name])
        raise


def _calls(
    model: nn.Module, modules: dict[str, nn.MultiheadAttention], images: Tensor
) -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    """Return the arguments of each module that is called."""
    calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
    handles = [
        module.register_forward_pre_hook(
            lambda _, arguments, options, name=name: calls.__setitem__(name, (arguments, options)), with_kwargs=True
        )
        for name, module in modules.items()
    ]
    try:
        with evaluating(model), torch.no_grad():
            model(images.clone())
    except Exception:
        return {}  # tracing says what is wrong with them
    finally:
        for handle in handles:
            handle.remove()
    return calls


@torch.no_grad()
def _check(module: nn.MultiheadAttention, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Raise unless the linear layers agree with a module on random values with random weights."""
    original, random = copy.deepcopy(module).eval(), torch.Generator().manual_seed(0)
    for parameter in original.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=random) * 0.3)
    places = ("query", "key", "value")
    values = dict(zip(places, arguments, strict=False)) | options
    drawn = {id(values[name]): torch.randn(values[name].shape, generator=random).to(values[name]) for name in places}
    values |= {name: drawn[id(values[name])] for name in places}
    names = ("key_padding_mask", "need_weights", "attn_mask", "average_attn_weights", "is_causal")
    masks = dict(zip(names, arguments[3:], strict=False))
    expected, computed = original(**(values | masks))[0], Multihead(original)(**(values | masks))[0]
    if not agree(computed, expected):
        rule, got = "an attention must compute what its module says", f"other values at {name!r}"
        raise RuleError(rule, got=got, remedy="leave each query a key that is not masked")
