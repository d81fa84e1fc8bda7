"""The schema of `python -m papers.pareto`, and the cells that its settings name."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from papers.pruning.search import SCORES
from privcirnet.config import DataConfig, HEConfig, RecipeConfig
from privcirnet.config.checks import check, check_name, check_place, check_powers_of_two
from privcirnet.config.search import BUDGETS

METHODS = ("dense", "uniform", "weights", "loss_aware", "kfac", "energy", "searched", "pruning")
"""dense: b = 1; uniform: one block size everywhere; weights, loss_aware, kfac, energy: the integer program on weight
errors, on Fisher information and on the sensitivities of these names; searched: the best of all but weights by the
search's score; pruning: whole BSGS diagonals by mean magnitude (SpENCNN-style)."""


@dataclass(frozen=True)
class Cell:
    """One point of the comparison.

    Attributes:
        method: one of :data:`METHODS`.
        b: the budget is the latency of this block size everywhere; 1 for dense.
        budget_on: what the budget limits, a key of :data:`BUDGETS`; "" where both come to the same.
    """

    method: str
    b: int
    budget_on: str = ""

    @property
    def name(self) -> str:
        """Of its files."""
        return "-".join(filter(None, (self.method, f"b{self.b}", self.budget_on)))


@dataclass
class ParetoConfig:
    """Settings of python -m papers.pareto: accuracy over predicted latency, method beside method."""

    root: str = "outputs"
    """folder that holds the run directories."""
    out: str = "${root}/pareto"
    """folder of this comparison."""
    init: str = "${root}/train"
    """run directory of the dense network that every cell starts from, or its checkpoint."""
    method: str = "every"
    """dense, uniform, weights, loss_aware, kfac, energy, searched, pruning, or every."""
    b: int = 0
    """block size whose latency everywhere is the budget; 0 for each of budgets."""
    budget_on: str = "both"
    """seconds that budgets limit: server, all, or both, one after the other."""
    budgets: list[int] = field(default_factory=lambda: [2, 4, 8, 16])
    """block sizes whose latencies are the budgets."""
    block_sizes: list[int] = field(default_factory=lambda: [1, 2, 4, 8, 16, 32])
    """sizes to choose from."""
    samples: int = 2048
    """training images that the Fisher information is measured on."""
    damping: float = 1.0
    """of the projection whose sensitivity is measured; see recipe.damping."""
    race: int = 0
    """steps of a race that chooses among the searched plans; 0: they are compared before training."""
    scores: str = "magnitude"
    """of pruning: mean magnitude, or relative to the layer's."""
    train_images: int = 0
    """training images to fine-tune on, 0 for all."""
    draw: bool = False
    """only draw what is complete."""
    seeds: list[int] = field(default_factory=lambda: [0])
    """of batch order; every cell is trained with each, and the table has means and spreads."""
    device: str = "auto"
    """cpu, cuda, or auto: cuda if there is one."""
    data: DataConfig = field(default_factory=DataConfig)
    he: HEConfig = field(default_factory=HEConfig)
    recipe: RecipeConfig = field(default_factory=RecipeConfig)

    def __post_init__(self) -> None:
        check_place("out", self.out)
        check_name("method", self.method, (*METHODS, "every"))
        check_name("budget_on", self.budget_on, (*BUDGETS, "both"))
        check_name("scores", self.scores, SCORES)
        check_powers_of_two("block_sizes", self.block_sizes)
        check_powers_of_two("budgets", self.budgets)
        wanted = sorted({1, *self.budgets, self.b or 1} - set(self.block_sizes))
        check(not wanted, "block_sizes must have 1 and those of the budgets", self.block_sizes, f"add {wanted}")
        check(self.recipe.stage == "finetune", "every cell is fine-tuned", self.recipe.stage, "use recipe=finetune")
        good = bool(self.seeds) and len(set(self.seeds)) == len(self.seeds)
        check(good, "seeds must be different numbers, at least one", self.seeds, "use [0], or [0,1]")
        check(self.samples >= 1, "samples must be positive", self.samples, "use 2048")
        check(self.train_images >= 0, "train_images must not be negative", self.train_images, "use 0 for all")

    def cells(self) -> Iterator[Cell]:
        """Yield the cells that are asked for: dense has one for all budgets, uniform one for both kinds of seconds."""
        methods = METHODS if self.method == "every" else (self.method,)
        kinds = tuple(BUDGETS) if self.budget_on == "both" else (self.budget_on,)
        if "dense" in methods:
            yield Cell("dense", 1)
        for b in [self.b] if self.b else self.budgets:
            for method in methods:
                if method == "uniform":
                    yield Cell(method, b)
                elif method != "dense":
                    yield from (Cell(method, b, kind) for kind in kinds)
