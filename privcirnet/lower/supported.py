"""Which modules run encrypted, and what to use in place of those that do not."""

from torch import fx, nn

from privcirnet.errors import RuleError
from privcirnet.nn.activations import Square
from privcirnet.nn.attention import SoftmaxAttention
from privcirnet.nn.graph import is_sum, module_of
from privcirnet.nn.quantizers import ActivationQuantizer
from privcirnet.nn.tokens import Channels, HeadProduct, HeadTranspose, Take, Tokens

_SUPPORTED = (
    "Conv2d, Linear, BatchNorm2d (fused), Square, AESPA (fused), +, AvgPool2d, Flatten, Tokens, Take, TokenBatchNorm "
    "(fused), PolynomialAttention (fused)"
)
_INSTEAD: dict[type[nn.Module], str] = {
    SoftmaxAttention: "PolynomialAttention (model.arguments.attention=polynomial)",
    nn.LayerNorm: "TokenBatchNorm (model.arguments.norm=batch)",
    **dict.fromkeys((nn.GELU, nn.ReLU, nn.ReLU6), "Square or AESPA (model.arguments.activation=aespa)"),
}
_NAMED_AT_MOST = 5


def check_operations(graph: fx.GraphModule) -> None:
    """Name everything that does not run encrypted, modules by their paths.

    Raises:
        RuleError: there is something.
    """
    wrong: list[str] = []
    remedies: dict[str, None] = {}
    for node in graph.graph.nodes:
        module = module_of(graph, node)
        if node.op in ("placeholder", "output") or is_sum(node) or _runs_encrypted(module):
            continue
        known = _INSTEAD.get(type(module)) if module is not None else None
        remedies[f"{known} instead of {type(module).__name__}" if known else _SUPPORTED] = None
        wrong.append(
            f"{node.target} ({type(module).__name__})" if module is not None else f"{node.name} ({node.target})"
        )
    if wrong:
        more = f" and {len(wrong) - _NAMED_AT_MOST} more" if len(wrong) > _NAMED_AT_MOST else ""
        raise RuleError(
            "every operation must be one that runs encrypted",
            got=", ".join(wrong[:_NAMED_AT_MOST]) + more,
            remedy=f"use {'; '.join(remedies)}",
        )


def _runs_encrypted(module: nn.Module | None) -> bool:
    match module:
        case nn.Conv2d() | nn.Linear() | ActivationQuantizer() | Square() | nn.AvgPool2d():
            return True
        case Tokens() | Take() | Channels() | HeadTranspose() | HeadProduct():
            return True
        case nn.Flatten(start_dim=1, end_dim=-1) | nn.Identity() | nn.Dropout():
            return True
        case _:
            return False
