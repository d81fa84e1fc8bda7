"""The papers' encodings by name, and layouts by name.

They are the same code with something fixed; :func:`plan_named` plans a layer in any of them:

| name | what is fixed | paper |
|---|---|---|
| cirencode | nothing: any block size, GEMM or convolution | PrivCirNet, section 3.2 |
| bolt | b = 1, 1 x 1 kernel, BSGS over lanes of tokens | Bolt, PrivCirNet's baseline |
| neujeans | b = 1, larger kernel: image axes transformed, BSGS over channels | NeuJeans, section 4 (CinS), in BFV |
| ensei | b = 1, larger kernel, no rotation: all sums of lanes on shares | ENSEI, section 4.1 (FDSC) |
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from privcirnet.errors import RuleError
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.goal import LayerChoice, Objective
from privcirnet.he.planning.planner import counted_goal, plan_layer


@dataclass(frozen=True)
class Encoding:
    """A named encoding.

    Attributes:
        fits: whether it has a form for (shape, block size).
        plan: plans a layer in it.
    """

    fits: Callable[[LinearShape, int], bool]
    rule: str
    plan: Callable[[LinearShape, int, Objective], LayerChoice] = plan_layer


def _dense_kernel(shape: LinearShape, b: int) -> bool:
    return b == 1 and shape.kernel > 1


def _on_shares(shape: LinearShape, b: int, goal: Objective) -> LayerChoice:
    return plan_layer(shape, b, replace(goal, sums="shares"))


NAMES = {
    "cirencode": Encoding(lambda shape, b: True, "is for every layer"),
    "bolt": Encoding(lambda shape, b: b == 1 and shape.kernel == 1, "is for b = 1 and 1 x 1 kernels"),
    "neujeans": Encoding(_dense_kernel, "is for b = 1 and larger kernels"),
    "ensei": Encoding(_dense_kernel, "is for b = 1 and larger kernels", _on_shares),
}
"""Encodings by the papers' names; papers/coefficients has two more, of polynomials."""


def plan_named(name: str, shape: LinearShape, block_size: int, goal: Objective) -> LayerChoice:
    """Return the cheapest plan of a layer in a named encoding; ``name``: of :data:`NAMES`."""
    encoding = NAMES.get(name)
    if encoding is None:
        raise RuleError("the encoding must be a known one", got=repr(name), remedy=f"use {', '.join(NAMES)}")
    if not encoding.fits(shape, block_size):
        got = f"b = {block_size}, kernel {shape.kernel}, {shape.groups} groups"
        raise RuleError(f"the encoding {name} {encoding.rule}", got=got, remedy="use cirencode")
    return encoding.plan(shape, block_size, goal)


def plan_as_counted(name: str, shape: LinearShape, block_size: int, goal: Objective) -> LayerChoice:
    """Return the plan of least HE-Rot + 0.135 HE-Pmult, every sum under encryption: what the papers count."""
    return plan_named(name, shape, block_size, counted_goal(goal.profile.ring_degree))


LAYOUTS = {"paper": plan_as_counted, "best": plan_named}
"""Planners of layers by the name of a layout, then by that of an encoding."""
