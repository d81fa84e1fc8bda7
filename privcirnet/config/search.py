"""How block sizes are chosen: the settings of privcirnet.search, and the schema of search.py."""

import re
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import NamedTuple

from privcirnet.artifact.records import REPLACEMENTS
from privcirnet.config.checks import check, check_name, check_powers_of_two, choice, number
from privcirnet.config.recipe import FitConfig, ProjectionConfig, RecipeConfig
from privcirnet.config.run import TrainedConfig
from privcirnet.he.layers.layer import MOST_IMAGES

BUDGETS = {"all": "seconds", "server": "server"}
"""What a budget limits -> the prediction of that name: seconds in all, or those of the server, as the papers count."""
OBJECTIVES = {
    "prepared": BUDGETS,
    "online": {"all": "online", "server": "online"},
    "total": {"all": "total", "server": "total_server"},
}
"""What is to be fast -> what a budget limits -> the prediction of that name. All of a linear layer's encrypted work is
preparation; with the image it is the server's work alone, in clear."""
_BUDGET = "b4"
PROPOSALS = ("kfac", "energy", "fisher")
SCORES = ("divergence", "none")
SENSITIVITIES = ("auto", *PROPOSALS, "batch_gradient", "weights")


class Budget(NamedTuple):
    """A latency: seconds, that of one block size everywhere, or a share of the dense network's; one is positive."""

    seconds: float = 0.0
    uniform: int = 0
    fraction: float = 0.0


def read_budget(budget: float | str) -> Budget:
    """Return the latency that ``budget=`` stands for.

    Args:
        budget: seconds, a block size as b4, or a share as 50%; 0: the default.

    Raises:
        RuleError: it is negative, or has another form.

    >>> read_budget(0.4).seconds, read_budget("b8").uniform, read_budget("50%").fraction
    (0.4, 8, 0.5)
    """
    if not isinstance(budget, str):
        check(budget >= 0, "budget must be at least 0", budget, "use seconds, b4 or 50%")
        return Budget(seconds=budget) if budget else read_budget(_BUDGET)
    size, share = re.fullmatch(r"b[1-9]\d*", budget), re.fullmatch(r"(\d+\.?\d*)%", budget)
    if size:
        return Budget(uniform=int(budget[1:]))
    fraction = float(share[1]) / 100 if share else 0.0
    rule = "budget must be seconds, a block size or a share"
    check(0 < fraction <= 1, rule, repr(budget), "use 0.4, b4 or 50%")
    return Budget(fraction=fraction)


def uniform(block_size: int) -> str:
    """Return the budget of :func:`privcirnet.search` that is the latency of one block size everywhere.

    Args:
        block_size: one of those to choose from.

    Raises:
        RuleError: it is no such size.
    """
    good = isinstance(block_size, Integral) and block_size >= 1
    check(good, "block_size must be a positive integer", repr(block_size), "use 4")
    return f"b{block_size}"


def fraction(share: float) -> str:
    """Return the budget of :func:`privcirnet.search` that is a share of the dense network's latency.

    Args:
        share: above 0, at most 1.

    Raises:
        RuleError: it is no such share.
    """
    good = isinstance(share, Real) and 0 < share <= 1
    check(good, "a share of the latency must be in (0, 1]", repr(share), "use 0.5")
    return f"{100 * share:.12g}%"


@dataclass
class SearchConfig(ProjectionConfig):
    """How :func:`privcirnet.search` chooses block sizes."""

    budget: int | float | str = _BUDGET
    """of an image: seconds; or b4, the latency of block size 4 everywhere; or 50%, a share of the dense network's."""
    block_sizes: list[int] = field(default_factory=lambda: [1, 2, 4, 8, 16, 32])
    """sizes to choose from."""
    budget_on: str = choice("all", BUDGETS)
    """seconds that the budget limits: all (server, client and network) or server, as the papers count."""
    objective: str = choice("prepared", OBJECTIVES)
    """what is to be fast: prepared (the preparation, which has all encrypted work), online (with the image) or total
    (both)."""
    online_s: float = number(0.0, least=0)
    """cap on the seconds with the image besides the budget; 0 for none."""
    prepared_s: float = number(0.0, least=0)
    """cap on the seconds of preparation besides the budget; 0 for none."""
    together: int = number(1, least=1, most=MOST_IMAGES)
    """images that are prepared at once, 1 to 8: layers that then take several together are priced so."""
    sensitivity: str = choice("auto", SENSITIVITIES)
    """kfac (errors of the outputs after the least-squares start), energy (what the entries that become one weigh),
    fisher (per-sample gradients), batch_gradient (the published shortcut) or weights (plain squared error); auto lets
    kfac, energy and fisher propose a plan each."""
    score: str = choice("divergence", SCORES)
    """how the plans and one block size everywhere compete: divergence (from the dense network, after the least-squares
    start) or none, for the plan that is proposed first."""
    refine: float = number(0.0, least=0)
    """seconds of a local search around the best plan, by its score; 0 for none."""
    race: int = number(0, least=0)
    """steps that each plan's network is trained for, as ``recipe`` says, before the divergence chooses; 0 for none."""
    recipe: FitConfig = field(default_factory=FitConfig)
    """how plans are trained in a race: as fine-tuning will train the chosen one."""
    samples: int = number(2048, least=1)
    """training images, at most, that the Fisher information is measured on: fewer where doubling them leaves the plan
    unchanged."""
    pinned: list[str] = field(default_factory=list[str])
    """layers that have no choice, with their block size: [stem:1,layer4.*:8]; of activations act1:own or act1:aespa."""
    equal: list[list[str]] = field(default_factory=list[list[str]])
    """groups of layers that must have equal block sizes: [[layer1.*],[layer2.0.conv1,layer2.0.conv2]]."""
    traffic_mb: float = number(0.0, least=0)
    """cap on the bytes exchanged for an image, both ways, in 10^6 bytes; 0 for none."""
    memory_mb: float = number(0.0, least=0)
    """cap on the server's encoded weights, in 10^6 bytes; 0 for none."""
    compose: bool = False
    """whether a 1 x 1 convolution may become one with the next, as an inverted residual's project with the next expand:
    where both have one block size and it is predicted to pay."""
    activations: list[str] = field(default_factory=list[str])
    """what activations may become, besides staying exact: aespa, square, identity; budgets then count them. None: they
    stay, or were replaced before."""
    solver: str = choice("cbc", ("cbc", "highs"))
    """cbc, which comes with PuLP, or highs, which needs privcirnet[highs]."""
    sweep: int = number(12, least=0)
    """number of budgets between the fastest and the slowest latency, with a plan for each; 0 for none."""


@dataclass
class SearchRunConfig(SearchConfig, TrainedConfig):
    """Settings of search.py: choose a block size for every layer under a latency budget."""

    out: str = "${root}/search"
    recipe: RecipeConfig = field(default_factory=RecipeConfig)  # pyright: ignore[reportIncompatibleVariableOverride]
    """how plans are trained in a race: as fine-tuning will train the chosen one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_powers_of_two("block_sizes", self.block_sizes)
        fits = self.limit.uniform in (0, *self.block_sizes) or self.budget == _BUDGET
        remedy = f"use {', '.join(f'b{size}' for size in self.block_sizes if size > 1)}"
        check(fits, "budget must be one of block_sizes", self.budget, remedy)
        instead = f"use budget=b{self.recipe.uniform}"
        check(not self.recipe.uniform, "search.py chooses block sizes", f"uniform={self.recipe.uniform}", instead)
        direct = self.mode == "interactive" or (self.limited == "seconds" and not self.online_s + self.prepared_s)
        check(direct, "mode=ckks prepares nothing", self.objective, "leave objective, online_s and prepared_s out")
        alone = self.mode == "interactive" or not self.compose
        check(alone, "mode=ckks has no rounds that composing saves", "compose=true", "use compose=false")
        ahead = self.together == 1 or self.objective in ("prepared", "total")
        check(ahead, "together= is about preparations", self.together, "give objective=prepared or total")
        apart = self.together == 1 or not self.compose
        check(apart, "composed layers are priced for one image at a time", self.together, "use together=1")
        for kind in self.activations:
            check_name("activations", kind, REPLACEMENTS)
        prepared = not self.activations or (self.mode == "interactive" and self.sensitivity in ("auto", "fisher"))
        got = f"mode={self.mode} sensitivity={self.sensitivity}"
        check(prepared, "activations need mode=interactive sensitivity=fisher", got, "leave activations out")
        scored = not self.refine or self.scores
        got = f"refine={self.refine:g} score={self.score} mode={self.mode}"
        check(scored, "only scored plans can be refined", got, "leave refine out")
        got = f"race={self.race} score={self.score} mode={self.mode}"
        check(not self.race or self.scores, "only scored plans can race", got, "leave race out")

    @property
    def limit(self) -> Budget:
        """The latency that the budget stands for."""
        return read_budget(self.budget)

    @property
    def kinds(self) -> list[str]:
        """The kinds of sensitivity that propose a plan each, the preferred one first."""
        if self.sensitivity != "auto":
            return [self.sensitivity]
        return list(PROPOSALS) if self.scores else ["fisher"]

    @property
    def scores(self) -> bool:
        """Whether plans are scored: those of block sizes alone, in layers that stay what they are."""
        return self.score != "none" and self.mode == "interactive" and not self.activations and not self.compose

    @property
    def limited(self) -> str:
        """Name of the prediction that the budget limits."""
        return OBJECTIVES[self.objective][self.budget_on]
