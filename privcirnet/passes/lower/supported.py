"""Which modules run encrypted, and what to use in place of those that do not."""

from torch import fx, nn
from torch.nn.modules.dropout import _DropoutNd

from privcirnet.errors import RuleError, listed
from privcirnet.nn.activations import Square
from privcirnet.nn.attention import SoftmaxAttention
from privcirnet.nn.concat import Concat
from privcirnet.nn.graph import is_plain_layer, is_sum, module_of
from privcirnet.nn.moves import Move
from privcirnet.nn.nonpolynomial import FUNCTION_MODULES, Tabulated
from privcirnet.nn.normalization import BelowMax, Centered, SumChannels
from privcirnet.nn.quantizers import ActivationQuantizer
from privcirnet.nn.tokens import Channels, HeadProduct, HeadTranspose, Take, Tokens
from privcirnet.passes.lower.activations import has_exact_form
from privcirnet.passes.surgery.changes import WITHOUT_SOFTMAX

_SUPPORTED = (
    "Conv2d, Linear, BatchNorm2d (fused), Square, AESPA (fused), +, Concat, AvgPool2d, Flatten, Tokens, Take, "
    "TokenBatchNorm (fused), PolynomialAttention (fused); privcirnet.polynomial_ replaces others"
)
_POLYNOMIAL = "Square or AESPA (model.arguments.activation=aespa)"
_INSTEAD: dict[type[nn.Module], str] = {
    SoftmaxAttention: "PolynomialAttention (model.arguments.attention=polynomial)",
    nn.LayerNorm: "TokenBatchNorm (model.arguments.norm=batch)",
    nn.AdaptiveAvgPool2d: "quantize(model, images), which makes an AvgPool2d of one over a whole map,",
    nn.MaxPool2d: "AvgPool2d (privcirnet.polynomial_)",
    **dict.fromkeys(FUNCTION_MODULES, _POLYNOMIAL),
}
_EXACT = "or he.nonlinear=exact"


def check_operations(graph: fx.GraphModule, nonlinear: str) -> None:
    """Name everything that does not run encrypted, modules by their paths.

    Args:
        nonlinear: "exact" if activations that are no polynomials run by two-party computation; "real" in CKKS.
    """
    rule, wrong, remedies, others = (
        "every operation must be one that runs encrypted",
        list[str](),
        list[str](),
        set[str](),
    )
    for node in graph.graph.nodes:
        module = module_of(graph, node)
        if node.op in ("placeholder", "output") or is_sum(node) or _runs_encrypted(module, nonlinear):
            continue
        kind = _kind_of(module)
        known = _INSTEAD.get(kind)
        other = WITHOUT_SOFTMAX if isinstance(module, nn.Softmax | nn.LogSoftmax) else _SUPPORTED
        remedies.append(f"{known} instead of {kind.__name__}" if known else other)
        others |= {_EXACT} if has_exact_form(module) else set()
        wrong.append(f"{node.target} ({kind.__name__})" if module is not None else f"{node.name} ({node.target})")
    if wrong:
        each = [RuleError(rule, got=name, remedy=f"use {use}") for name, use in zip(wrong, remedies, strict=True)]
        remedy = f"use {'; '.join([*dict.fromkeys(remedies), *others])}"
        raise RuleError(rule, got=listed(wrong), remedy=remedy).of(each)


def _kind_of(module: nn.Module | None) -> type:
    """What a module is, or is a piece of."""
    if isinstance(module, BelowMax) or (isinstance(module, Tabulated) and module.function != "rsqrt"):
        return SoftmaxAttention
    return nn.LayerNorm if isinstance(module, Tabulated) else type(module)


def _runs_encrypted(module: nn.Module | None, nonlinear: str) -> bool:  # noqa: PLR0911
    match module:
        case _ if nonlinear == "exact" and has_exact_form(module):
            return True
        case nn.Conv2d() | nn.Linear():
            return is_plain_layer(module)
        case ActivationQuantizer() | Square() | nn.AvgPool2d():
            return True
        case (
            Tokens()
            | Take()
            | Channels()
            | HeadTranspose()
            | HeadProduct()
            | Concat()
            | Move()
            | Centered()
            | SumChannels()
        ):
            return True
        case nn.AdaptiveAvgPool2d(output_size=1 | (1, 1)):
            return nonlinear == "real"
        case nn.Flatten(start_dim=1, end_dim=-1) | nn.Identity() | _DropoutNd():
            return True
        case _:
            return False
