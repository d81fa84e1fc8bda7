"""The papers' encodings by name, and layouts by name.

Five of the names are the same code with something fixed; :func:`plan_named` plans a layer in any of them:

| name | what is fixed | paper |
|---|---|---|
| any | nothing: whatever is cheapest | |
| cirencode | nothing: any block size, GEMM or convolution | PrivCirNet, section 3.2 |
| bolt | b = 1, 1 x 1 kernel, BSGS over lanes of tokens | Bolt, PrivCirNet's baseline |
| neujeans | b = 1, larger kernel: image axes transformed, BSGS over channels | NeuJeans, section 4 (CinS), in BFV |
| ensei | b = 1, larger kernel, no rotation: all sums of lanes on shares | ENSEI, section 4.1 (FDSC) |
| cheetah | coefficient encoding of any layer, no rotation | Cheetah |
| falcon | coefficient encoding of channel groups, packed densely, no rotation | Falcon 2023, section 4 |
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from privcirnet.errors import RuleError
from privcirnet.he.layers.coefficient_layer import COEFFICIENT_ENCODINGS
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.goal import Goal, LayerChoice
from privcirnet.he.planning.planner import counted_goal, plan_layer


@dataclass(frozen=True)
class Encoding:
    """A named encoding.

    Attributes:
        fits: whether it has a form for (shape, block size).
        sums: see :class:`Goal`; "" leaves the goal's.
        family: see :class:`Goal`.
    """

    fits: Callable[[LinearShape, int], bool]
    rule: str
    sums: str = ""
    family: str = "spectral"


def _every(shape: LinearShape, b: int) -> bool:
    return True


def _dense_kernel(shape: LinearShape, b: int) -> bool:
    return b == 1 and shape.kernel > 1


NAMES = {
    "cirencode": Encoding(_every, "is for every layer"),
    "bolt": Encoding(lambda shape, b: b == 1 and shape.kernel == 1, "is for b = 1 and 1 x 1 kernels"),
    "neujeans": Encoding(_dense_kernel, "is for b = 1 and larger kernels"),
    "ensei": Encoding(_dense_kernel, "is for b = 1 and larger kernels", "shares"),
    **{
        name: Encoding(lambda shape, b, fits=own.fits: fits(shape), own.rule, family=name)
        for name, own in COEFFICIENT_ENCODINGS.items()
    },
    "any": Encoding(_every, "is for every layer", family="any"),
}
"""Encodings by the papers' names."""


def plan_named(name: str, shape: LinearShape, block_size: int, goal: Goal) -> LayerChoice:
    """Return the cheapest plan of a layer in a named encoding; ``name``: of :data:`NAMES`."""
    encoding = NAMES.get(name)
    if encoding is None:
        raise RuleError("the encoding must be a known one", got=repr(name), remedy=f"use {', '.join(NAMES)}")
    if not encoding.fits(shape, block_size):
        got = f"b = {block_size}, kernel {shape.kernel}, {shape.groups} groups"
        raise RuleError(f"the encoding {name} {encoding.rule}", got=got, remedy="use cirencode")
    return plan_layer(shape, block_size, replace(goal, sums=encoding.sums or goal.sums, family=encoding.family))


def plan_as_counted(name: str, shape: LinearShape, block_size: int, goal: Goal) -> LayerChoice:
    """Return the plan of least HE-Rot + 0.135 HE-Pmult, every sum under encryption: what the papers count."""
    return plan_named(name, shape, block_size, counted_goal(goal.profile.ring_degree))


LAYOUTS = {"paper": plan_as_counted, "best": plan_named}
"""Name of a layout -> what plans a layer in it, by name of an encoding."""
