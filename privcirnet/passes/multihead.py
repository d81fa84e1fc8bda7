"""torch's MultiheadAttention as linear layers around an attention that can be traced."""

import copy
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import starmap
from typing import Any, TypeGuard, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privcirnet.errors import RuleError
from privcirnet.nn.agreement import agree
from privcirnet.nn.circulant import block_size_of, take_weight_
from privcirnet.nn.graph import evaluating

AnyModule = TypeVar("AnyModule", bound=nn.Module)
_PLACES = "query", "key", "value"
_OPTIONS = "key_padding_mask", "need_weights", "attn_mask", "average_attn_weights", "is_causal"
"""Names of the arguments of an nn.MultiheadAttention in order, after the values."""
_ATTRIBUTES = (
    *("embed_dim", "kdim", "vdim", "head_dim", "num_heads", "dropout", "batch_first", "add_zero_attn"),
    "_qkv_same_embed_dim",
)
_NESTING = "use_nested_tensor"
_RULE = "a multi-head attention must be over the tokens of each image"


class Multihead(nn.Module):
    """The layers of an nn.MultiheadAttention as linear layers, around an attention that can be traced.

    Layers of whole parameters have those themselves. Torch's transformer layers may hold it in place of an
    nn.MultiheadAttention; they then take their slow path. It loads the state of either.

    Args:
        module: the attention, or one whose layer ``qkv`` becomes three.
        joined: whether one layer, ``qkv``, gives queries, keys and values, where they are as wide; else ``q``, ``k``
            and ``v`` do.
    """

    in_proj_weight = None
    in_proj_bias = None
    embed_dim: int
    kdim: int
    vdim: int
    head_dim: int
    num_heads: int
    dropout: float
    batch_first: bool
    add_zero_attn: bool
    _qkv_same_embed_dim: bool

    def __init__(self, module: "nn.MultiheadAttention | Multihead", joined: bool = True) -> None:
        super().__init__()
        for name in _ATTRIBUTES:
            setattr(self, name, getattr(module, name))
        if isinstance(module, Multihead):
            self.q, self.k, self.v = _thirds(module.qkv)
        elif self._qkv_same_embed_dim and joined:
            self.qkv = _layer(module.in_proj_weight, module.in_proj_bias)
        elif self._qkv_same_embed_dim:
            self.q, self.k, self.v = _thirds(_layer(module.in_proj_weight, module.in_proj_bias))
        else:
            weights = module.q_proj_weight, module.k_proj_weight, module.v_proj_weight
            self.q, self.k, self.v = starmap(_layer, zip(weights, _biases(module.in_proj_bias), strict=True))
        self.bias_k, self.bias_v, self.out_proj = module.bias_k, module.bias_v, module.out_proj
        self.register_load_state_dict_pre_hook(_unpack)
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
        if isinstance(query, Tensor) and query.dim() != 3:  # no symbolic value, of unknown shape
            got, remedy = f"values of {len(query.shape)} axes", "give it values (N, T, C)"
            raise RuleError(_RULE, got=got, remedy=remedy)
        q, k, v = self._projected(query, key, value)
        constants = _masks(attn_mask, key_padding_mask, q)
        q, k, v, constants = self._with_more_keys(q, k, v, constants)
        q, k, v = (tensor.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for tensor in (q, k, v))
        weights: Tensor | None = None
        if need_weights:
            scores: Tensor = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
            weights = (scores if constants is None else scores + constants).softmax(-1)
            weights = F.dropout(weights, self.dropout) if self.dropout and self.training else weights
            result = weights @ v
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            result = F.scaled_dot_product_attention(q, k, v, constants, self.dropout if self.training else 0.0)
        result = self.out_proj(result.transpose(1, 2).flatten(2))
        return result if self.batch_first else result.transpose(0, 1), weights

    def packed(self, state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
        """Return a state whose tensors of this module have the names that an nn.MultiheadAttention gives them.

        Args:
            state: a network's, with plain weights.
            prefix: this module's name, with a dot behind it.
        """
        joined = {f"{prefix}qkv.{name}": f"{prefix}in_proj_{name}" for name in ("weight", "bias")}
        return {joined.get(key, key): value for key, value in state.items()}

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> Sequence[Tensor]:
        inputs = [self._images_first(tensor) for tensor in (query, key, value)]
        if not hasattr(self, "qkv"):
            return [layer(tensor) for layer, tensor in zip((self.q, self.k, self.v), inputs, strict=True)]
        if query is key and key is value:
            return self.qkv(inputs[0]).chunk(3, -1)
        return [self.qkv(tensor).chunk(3, -1)[i] for i, tensor in enumerate(inputs)]

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
            k = torch.cat([key.expand(k.shape[0], -1, -1), k], 1)
            v = torch.cat([value.expand(v.shape[0], -1, -1), v], 1)
            constants = None if constants is None else F.pad(constants, (1, 0))
        return q, k, v, constants


def _unpack(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Give a state's tensors of an nn.MultiheadAttention the names of its layers."""
    for name in ("weight", "bias"):
        if (key := f"{prefix}in_proj_{name}") in state:
            state[f"{prefix}qkv.{name}"] = state.pop(key)


_KINDS = nn.MultiheadAttention | Multihead


def _thirds(layer: nn.Linear) -> list[nn.Linear]:
    """Return a layer for each third of a layer's outputs, circulant if that is and its blocks lie within them."""
    thirds = list(starmap(_layer, zip(layer.weight.chunk(3), _biases(layer.bias), strict=True)))
    if layer.out_features // 3 % block_size_of(layer) == 0:
        for i, third in enumerate(thirds):
            take_weight_(third, layer, lambda rows, i=i: rows.chunk(3)[i].clone())
    return thirds


def _biases(bias: Tensor | None) -> Sequence[Tensor | None]:
    return [None] * 3 if bias is None else bias.chunk(3)


def _layer(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = _parameter(weight)
    if bias is not None:
        layer.bias = _parameter(bias)
    return layer


def _parameter(tensor: Tensor) -> nn.Parameter:
    """Return a parameter: the tensor itself if it is one, else with a copy of its values."""
    return tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor.detach().clone())


def _masks(mask: Tensor | None, padding: Tensor | None, like: Tensor) -> Tensor | None:
    """Return the sum that masks add to scores (N, h, T, K); None without any."""
    added: list[Tensor] = []
    if mask is not None:
        pairs = _added(mask, like)
        added.append(pairs.unflatten(0, (like.shape[0], -1)) if pairs.ndim == 3 else pairs)
    if padding is not None:
        added.append(_added(padding, like)[:, None, None])
    return sum(added[1:], added[0]) if added else None


def _added(mask: Tensor, like: Tensor) -> Tensor:
    """Return the summand of a mask for scores: minus infinity where a Boolean one is true."""
    if mask.dtype != torch.bool:
        return mask
    dtype = like.dtype if isinstance(like.dtype, torch.dtype) else None  # not that of a symbolic value
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, float("-inf"))


def with_attention_layers(model: AnyModule) -> AnyModule:
    """Return a network whose attentions have linear layers: itself if there is nothing to change, else a copy."""
    if not (names := _multiheads(model)):
        return model
    model = copy.deepcopy(model)
    with attention_layers(model, names):
        return model


def planned_attentions(model: nn.Module, block_sizes: Mapping[str, int]) -> tuple[list[str], dict[str, int]]:
    """Return the names of attentions that become layers, and the block sizes without those of attentions that do not.

    Args:
        block_sizes: block size by name of a layer; an attention stays as it is where those of its layers are 1.

    >>> planned_attentions(nn.TransformerEncoderLayer(4, 1), {"self_attn.qkv": 2, "linear1": 1})
    (['self_attn'], {'self_attn.qkv': 2, 'linear1': 1})
    """
    owner = {name: name.rpartition(".")[0] for name in block_sizes}
    circulant = {owner[name] for name, b in block_sizes.items() if b != 1}
    attentions = _multiheads(model)
    dense = {f"{name}.qkv" for name in attentions if name not in circulant}
    sizes = {name: b for name, b in block_sizes.items() if name not in dense}
    return [name for name in attentions if name in circulant], sizes


@contextmanager
def attention_layers(model: nn.Module, names: Iterable[str], separate: Collection[str] = ()) -> Iterator[None]:
    """Put :class:`Multihead` in place of the attentions of these names; take them back if what follows fails.

    Args:
        model: a network; changed in place.
        separate: names of those whose queries, keys and values are of three layers.

    Yields:
        Nothing; the network is changed meanwhile.
    """
    modules = {name: model.get_submodule(name) for name in names}
    encoders = [module for name, module in model.named_modules() if _nests(module, name, modules)]
    try:
        for name, module in modules.items():
            assert isinstance(module, _KINDS)
            model.set_submodule(name, Multihead(module, name not in separate))
        for encoder in encoders:
            setattr(encoder, _NESTING, False)  # which holds for torch's own attention alone
        yield
    except BaseException:
        for name, module in modules.items():
            model.set_submodule(name, module)
        for encoder in encoders:
            setattr(encoder, _NESTING, True)
        raise


def _nests(module: nn.Module, name: str, attentions: Iterable[str]) -> bool:
    """Return whether a module is an encoder that turns padded tokens into a nested tensor for some of attentions."""
    nests = isinstance(module, nn.TransformerEncoder) and getattr(module, _NESTING)
    return nests and any(attention.startswith(f"{name}." if name else "") for attention in attentions)


@contextmanager
def multiheads_replaced(model: nn.Module, images: Tensor) -> Iterator[None]:
    """Put :class:`Multihead` in place of each attention that images reach, with the layers that its values need.

    Args:
        model: a network; changed in place.
        images: some images that it takes, to record the arguments of its attentions.

    Yields:
        Nothing; the network is changed meanwhile.
    """
    modules = {name: module for name, module in model.named_modules() if name and _computes_attention(module)}
    calls = _calls(model, modules, images) if modules else {}
    separate = {name for name, values in calls.items() if len({id(values[place]) for place in _PLACES}) > 1}
    changed = [name for name in calls if name in separate or not isinstance(modules[name], Multihead)]
    for name in changed:
        _check(modules[name], name, calls[name], name not in separate)
    with attention_layers(model, changed, separate):
        yield


def _computes_attention(module: nn.Module) -> "TypeGuard[nn.MultiheadAttention | Multihead]":
    """Return whether a module is an attention that computes what torch's class says."""
    forwards = nn.MultiheadAttention.forward, Multihead.forward
    return isinstance(module, _KINDS) and type(module).forward in forwards and "forward" not in vars(module)


def _multiheads(model: nn.Module) -> list[str]:
    """Return the names of each nn.MultiheadAttention inside a network that can have layers.

    Its queries, keys and values are as wide, it has one name, and nothing but torch's forward.
    """
    modules = [(name, module) for name, module in model.named_modules(remove_duplicate=False) if name]
    uses = Counter(id(module) for _, module in modules)
    attentions = [(name, module) for name, module in modules if type(module) is nn.MultiheadAttention]
    return [
        name
        for name, module in attentions
        if module._qkv_same_embed_dim and uses[id(module)] == 1 and _computes_attention(module) and not _hooks(module)
    ]


def _hooks(module: nn.Module) -> list[Any]:
    kinds = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    return [hook for hooks in kinds for hook in hooks.values()]


def _calls(model: nn.Module, modules: Mapping[str, nn.Module], images: Tensor) -> dict[str, dict[str, Any]]:
    """Return the arguments by name of each module that is called."""
    calls: dict[str, dict[str, Any]] = {}

    def record(name: str, module: nn.Module, values: tuple[Any, ...], options: dict[str, Any]) -> None:
        if name in calls:
            raise RuleError("a layer must run once an image", got=name, remedy="give each use its own layer")
        calls[name] = dict(zip((*_PLACES, *_OPTIONS), values, strict=False)) | options

    handles = [
        module.register_forward_pre_hook(partial(record, name), with_kwargs=True) for name, module in modules.items()
    ]
    try:
        with evaluating(model), torch.no_grad():
            model(images.clone())
    except RuleError:
        raise
    except Exception:
        return {}  # tracing says what is wrong with them
    finally:
        for handle in handles:
            handle.remove()
    return calls


@torch.no_grad()
def _check(module: "nn.MultiheadAttention | Multihead", name: str, values: dict[str, Any], joined: bool) -> None:
    """Raise unless the linear layers agree with a module on random values with random weights."""
    original, random = copy.deepcopy(module).eval(), torch.Generator().manual_seed(0)
    for parameter in original.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=random) * 0.3)
    drawn = {id(values[name]): torch.randn(values[name].shape, generator=random).to(values[name]) for name in _PLACES}
    inputs, options = [drawn[id(values[name])] for name in _PLACES], {k: v for k, v in values.items() if k in _OPTIONS}
    expected, computed = original(*inputs, **options)[0], Multihead(original, joined)(*inputs, **options)[0]
    if not agree(computed, expected):
        rule, got = "an attention must compute what its module says", f"other values at {name!r}"
        remedy = "leave each query a key that is not masked, and remove hooks that change values"
        raise RuleError(rule, got=got, remedy=remedy)
