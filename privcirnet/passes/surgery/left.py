"""Operations that surgery would have replaced, named where a later step fails on them."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import fx

from privcirnet.errors import RuleError, listed
from privcirnet.nn.modules import kind_of, named
from privcirnet.passes.surgery.edit import path_of

_KINDS = ("activation", "maximum", "gate", "layer norm")


@contextmanager
def name_unsupported(graph: fx.GraphModule) -> Iterator[None]:
    """Name the operations of a network that are no polynomials if a step on it breaks a rule.

    Yields:
        Nothing.

    Raises:
        RuleError: the step's error; it names the operations left to replace, if there are any.
    """
    try:
        yield
    except RuleError as error:
        nodes = (node for node in graph.graph.nodes if kind_of(graph, node) in _KINDS)
        remaining = [f"{path_of(node)} ({named(graph, node)})" for node in nodes]
        if not remaining:
            raise
        first = "run train.py recipe=replace activation=aespa first, and give it as recipe.init"
        remedy = f"{first}; activation=own keeps what he.nonlinear=exact runs"
        rule = "a network must have polynomial operations before it is quantized"
        raise RuleError(rule, got=f"{listed(remaining)}: {error.rule}", remedy=remedy) from error
