"""Modules that run encrypted, and replacements for those that do not."""

from torch import fx, nn

from privcirnet.errors import RuleError, listed
from privcirnet.nn.attention import SoftmaxAttention
from privcirnet.nn.graph import is_sum, module_of
from privcirnet.nn.modules import MODULES, Row, has_exact_form, runs_encrypted
from privcirnet.nn.nonpolynomial import TableFunction
from privcirnet.nn.normalization import SubtractMax
from privcirnet.passes.surgery.changes import WITHOUT_SOFTMAX

_SUPPORTED = (
    "Conv2d, Linear, BatchNorm2d (fused), Square, AESPA (fused), +, Concat, AvgPool2d, Flatten, Tokens, Take, "
    "TokenBatchNorm (fused), PolynomialAttention (fused); privcirnet.polynomial_ replaces others"
)
_EXACT = "or he.nonlinear=exact"


def check_operations(graph: fx.GraphModule, nonlinear: str) -> None:
    """Name everything that does not run encrypted, modules by their paths.

    Args:
        nonlinear: "exact" if activations that are no polynomials run by two-party computation; "real" in CKKS.
    """
    rule, wrong, remedies, more_remedies = (
        "every operation must be one that runs encrypted",
        list[str](),
        list[str](),
        set[str](),
    )
    for node in graph.graph.nodes:
        module = module_of(graph, node)
        if node.op in ("placeholder", "output") or is_sum(node) or runs_encrypted(module, nonlinear):
            continue
        kind = _kind_of(module)
        replacement = MODULES.get(kind, Row()).instead
        fallback = WITHOUT_SOFTMAX if isinstance(module, nn.Softmax | nn.LogSoftmax) else _SUPPORTED
        remedies.append(f"{replacement} instead of {kind.__name__}" if replacement else fallback)
        more_remedies |= {_EXACT} if has_exact_form(module) else set()
        wrong.append(f"{node.target} ({kind.__name__})" if module is not None else f"{node.name} ({node.target})")
    if wrong:
        errors = [RuleError(rule, got=name, remedy=f"use {use}") for name, use in zip(wrong, remedies, strict=True)]
        remedy = f"use {'; '.join([*dict.fromkeys(remedies), *more_remedies])}"
        raise RuleError(rule, got=listed(wrong), remedy=remedy).of(errors)


def _kind_of(module: nn.Module | None) -> type:
    """Return the class of a module, or of the module that it is a piece of."""
    if isinstance(module, SubtractMax) or (isinstance(module, TableFunction) and module.function != "rsqrt"):
        return SoftmaxAttention
    return nn.LayerNorm if isinstance(module, TableFunction) else type(module)
