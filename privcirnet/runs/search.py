"""The search of block sizes for a trained network, under the settings of search.py; privcirnet.search uses it."""

import math
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn

from privcirnet import distributed
from privcirnet.artifact.records import read_checkpoint, write_json, write_plan
from privcirnet.blocksize_search.activations import KINDS, OPTIONS, activation_figures, activation_sizes
from privcirnet.blocksize_search.assignment import Composable, Constraints, Solution, Table, uniform_latency
from privcirnet.blocksize_search.candidates import UNIFORM, Candidate, best
from privcirnet.blocksize_search.constraints import constraints_for
from privcirnet.blocksize_search.latency import (
    CostPrediction,
    FigureTable,
    amounts_of,
    composables,
    composed_figures,
    figure_table,
    figures_of,
    layer_shapes,
)
from privcirnet.blocksize_search.solve import Point, solve, sweep, uniform_points
from privcirnet.config import SearchRunConfig, run_file
from privcirnet.data.dataset import Examples, ImageData
from privcirnet.errors import RuleError
from privcirnet.he.planning.cost import Objective
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.profile import UNITS, Profile, column_unit, in_words
from privcirnet.nn.checks import image_of
from privcirnet.passes.compose import Pair, pairs
from privcirnet.passes.convert import paddable
from privcirnet.passes.fuse import fuse
from privcirnet.passes.multihead import with_attention_layers
from privcirnet.passes.surgery import exact_copy
from privcirnet.report import plots
from privcirnet.runs.check import left_to_replace, profile_of_program
from privcirnet.runs.competition import RACE, Problem, Scores, competed
from privcirnet.runs.profiles import PROFILE, find_profile, kept
from privcirnet.runs.progress import ProgressBar, silent
from privcirnet.train import sensitivities, stages

if TYPE_CHECKING:
    from privcirnet.blocksize_search.ckks import CkksFigures


@dataclass(frozen=True)
class SearchResult:
    """The result of a search; printed, a table of its layers.

    Attributes:
        profile: measured operation times; predictions scale them to the program's (n, q).
        figures: predictions by layer and block size.
        latency: the predicted seconds that the budget limits.
        budget: budget in seconds.
        uniform: plans of one block size everywhere, by block size.
        front: pairs (budget, best assignment) of the sweep.
        pairs: layers that may be composed, if that was allowed.
        candidates: plans that competed, with their scores; the solution is the best of them.
        together: predictions for composed layers, by the second layer's name and block size.
        ckks: parameters, depth and counts of a CKKS network; None for an interactive one.
    """

    profile: Profile
    figures: FigureTable
    latency: Table
    measured: sensitivities.MeasuredSensitivities
    budget: float
    solution: Solution
    uniform: dict[int, Point]
    front: list[tuple[float, Solution]]
    seconds_fisher: float
    candidates: Sequence[Candidate]
    pairs: Sequence[Pair] = ()
    together: FigureTable = field(default_factory=dict[str, dict[int, CostPrediction]])
    ckks: dict[str, object] | None = None

    @property
    def block_sizes(self) -> dict[str, int]:
        """The block sizes by layer name, for :func:`privcirnet.passes.convert.circulant_`."""
        return self.solution.layers

    @property
    def activations(self) -> dict[str, str]:
        """The replacements of activations, "own" if they stay, for :func:`privcirnet.polynomial_`."""
        return _activations(self.solution)

    @property
    def composed(self) -> tuple[str, ...]:
        """The layers that become one with the layer before them, for :func:`privcirnet.passes.fuse.fuse`."""
        return self.solution.composed

    @property
    def scores(self) -> dict[str, float]:
        """The scores before training by name of a plan that competed, the best first; empty if none was scored."""
        return _ranked((candidate.score, candidate.name) for candidate in self.candidates)

    @property
    def raced(self) -> dict[str, float]:
        """The scores after the race by name of a plan, the best first; empty without a race."""
        return _ranked((candidate.raced, candidate.name) for candidate in self.candidates)

    def predicted(self) -> CostPrediction:
        """Return the predictions of the best assignment."""
        sizes, joined = self.solution.block_sizes, [pair for pair in self.pairs if pair.second in self.composed]
        alone = sizes.keys() - {layer for pair in joined for layer in (pair.first, pair.second)}
        single = figures_of(self.figures, {name: b for name, b in sizes.items() if name in alone})
        return single + figures_of(self.together, {pair.second: sizes[pair.second] for pair in joined})

    def __str__(self) -> str:
        """Return a line for each layer, one for all, and those of :meth:`ranking`."""
        sizes, values, unit = self.solution.block_sizes, self.measured.values, column_unit(self.profile.counted)
        rows = [("layer", "b", unit.name, "sensitivity")]
        rows += [
            (n, KINDS.get(b, str(b)), f"{unit.scale * self.latency[n][b]:.2f}", f"{values[n][b]:.3g}")
            for n, b in sizes.items()
        ]
        rows += [(f"{name}, composed", "", "", "") for name in self.composed]
        budget, latency = (f"{unit.scale * value:.2f}" for value in (self.budget, self.solution.latency))
        rows.append((f"budget {budget} {unit.name}", "", latency, f"{self.solution.sensitivity:.3g}"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = (zip(row, widths, strict=True) for row in rows)
        table = ["  ".join([n.ljust(w), *(c.rjust(v) for c, v in cells)]) for (n, w), *cells in lines]
        return "\n".join([*table, *(f"{title}: {scores}" for title, scores in self.ranking().items())])

    @property
    def competition(self) -> dict[str, dict[str, float]]:
        """Return the scores of all plans, by the moment: before training, and after the race if there was one."""
        moments = {"before training": self.scores, "after the race": self.raced}
        return {moment: scores for moment, scores in moments.items() if scores}

    def ranking(self) -> dict[str, str]:
        """Return the scores of each moment of :attr:`competition`, in words, by a title."""
        named = {when: [f"{score:.3g} {name}" for name, score in of.items()] for when, of in self.competition.items()}
        return {f"plans by divergence {moment}": ", ".join(scores) for moment, scores in named.items()}


@dataclass(frozen=True)
class StoredSearch:
    """A search in a network of a run directory.

    Attributes:
        pad: whether layers may be padded.
    """

    model: str
    checkpoint: str
    result: SearchResult
    pad: bool = False


def search(
    config: SearchRunConfig, data: ImageData, bar: ProgressBar = silent, tell: Callable[[str], object] = lambda _: None
) -> StoredSearch:
    """Return the result of a search in the network of a run directory.

    Args:
        tell: function called before any measurement with the obstacles of later stages.
    """
    stored = read_checkpoint(run_file(config.init, stages.CHECKPOINT, "train.py"))
    model = with_attention_layers(stages.built(stored, data).model)
    image, _ = next(data.sampled(1, 1))
    if remaining := left_to_replace(model, image):
        tell(remaining)
    names = {name: {} for name in layer_shapes(model, image)}
    names |= {name: {OPTIONS["own"]: CostPrediction()} for name in _activation_sizes(config, model, image)}
    constraints_for(names, config.pinned, config.equal)  # said before a minute of calibrating
    sensitivities.check_trained(model, data, config.sensitivity, config.samples)
    profile = distributed.from_first(lambda: find_profile(config.he, bar=bar))
    with kept(profile, config.he, Path(config.out) / PROFILE):
        facts = {"checkpoint": stored.digest(), "race": config.race, "recipe": asdict(config.recipe)}
        scores = Scores(Path(config.out) / RACE, facts | {"data": asdict(config.data)})
        result = search_in(model, data, config, profile, bar, scores)
    return StoredSearch(stored.model, stored.digest(), result, config.pad)


def search_in(
    model: nn.Module,
    data: Examples,
    config: SearchRunConfig,
    profile: Profile,
    bar: ProgressBar = silent,
    scores: Scores | None = None,
) -> SearchResult:
    """Return the result of a search: latencies, sensitivities measured until they decide, the best assignment.

    Under torchrun every process calls it, and all find the same.

    Args:
        model: trained dense network; left as it was.
        scores: scores of an interrupted race; None for a new one.

    Raises:
        RuleError: the budget is out of reach, or a layer has no encrypted form.
    """
    prices = _priced(model, data, config, profile)
    latency = amounts_of(prices.figures, config.limited)
    composed = composables(prices.pairs, prices.pair_figures, config.limited)
    constraints, counted = _constraints(config, prices.figures, composed), prices.profile.counted
    budget = _budget(config, latency, counted)

    def decided(omega: Mapping[str, Mapping[int, float]]) -> Solution:
        return solve(omega, latency, budget, constraints, config.solver, UNITS if counted else "s")

    decided({name: dict.fromkeys(row, 0.0) for name, row in latency.items()})  # what cannot be met is said at once
    started = time.perf_counter()
    with bar("Sensitivity", min(config.samples, data.count)) as advance:
        kinds = sensitivities.measure(
            model,
            data,
            {name: tuple(row) for name, row in latency.items()},
            config.kinds,
            config.samples,
            config.damping,
            lambda omega: decided(omega).block_sizes,
            lambda n: advance(to=n),
        )
        seconds = time.perf_counter() - started
    proposed = {kind: decided(measured.values) for kind, measured in kinds.items()}
    omegas = {kind: measured.values for kind, measured in kinds.items()}
    problem = Problem(proposed, omegas, (latency, budget, constraints))
    candidates = (
        competed(model, data, config, problem, scores or Scores(), bar) if config.scores else problem.candidates()
    )
    winner = best(candidates)
    _warn_of_extremes(winner, latency)
    measured = kinds[winner.proposed_by] if winner.proposed_by in kinds else next(iter(kinds.values()))
    return SearchResult(
        profile=profile,
        figures=prices.figures,
        latency=latency,
        measured=measured,
        budget=budget,
        solution=winner.solution,
        uniform=uniform_points(measured.values, latency),
        front=sweep(measured.values, latency, config.sweep, constraints, config.solver) if config.sweep else [],
        seconds_fisher=seconds,
        candidates=candidates,
        pairs=prices.pairs,
        together=prices.pair_figures,
        ckks=prices.ckks,
    )


class _Prices(NamedTuple):
    """Predicted figures of a network.

    Attributes:
        profile: operation times that they are predicted by.
        figures: of each layer and activation, by its name and option.
        pairs: layers that may be composed.
        pair_figures: of composed layers, by the second layer's name and block size.
        ckks: facts of a CKKS network; None for an interactive one.
    """

    profile: Profile
    figures: FigureTable
    pairs: Sequence[Pair]
    pair_figures: FigureTable
    ckks: dict[str, object] | None


def _priced(model: nn.Module, data: Examples, config: SearchRunConfig, profile: Profile) -> _Prices:
    """Predict the figures of a network at every option, by a profile at the (n, q) of its program."""
    image, _ = next(data.sampled(1, 1))
    image = image.to(next(model.parameters()).device)
    if config.mode == "interactive":
        profile = _at_the_program(model, image, config, profile)
    padded, goal = paddable(model) if config.pad else (), Objective(profile, LINKS[config.he.link])
    ckks = _ckks(model, data, config, padded) if config.mode == "ckks" else None
    shapes = layer_shapes(model, image)
    figures = ckks.table if ckks else figure_table(shapes, config.block_sizes, goal, padded, config.together)
    replaced = activation_figures(model, _activation_sizes(config, model, image), config.activations, goal)
    layer_pairs = pairs(fuse(model)) if config.compose else []
    figures = {**figures, **replaced}
    pair_figures = composed_figures(layer_pairs, shapes, figures, goal.profile, goal.link)
    return _Prices(profile, figures, layer_pairs, pair_figures, ckks.facts() if ckks else None)


def _at_the_program(model: nn.Module, image: Tensor, config: SearchRunConfig, profile: Profile) -> Profile:
    """Return a profile's times at the (n, q) of the dense network's program; the profile if that is not known."""
    try:
        network = exact_copy(model, image).cpu()
        return profile_of_program(fuse(network), image_of(image.shape[1:]), config.he, profile)
    except RuleError:  # training replaces what has no encrypted form yet
        return profile


def write(stored: StoredSearch, out: Path) -> None:
    """Write plans, profile and pictures."""
    result, model = stored.result, stored.model
    about = {"model": model, "checkpoint": stored.checkpoint, "profile": result.profile.to_dict()}
    about |= {"pad": True} if stored.pad else {}
    unit = column_unit(result.profile.counted)
    for earlier in [*(out / "plans").glob("*ms.json"), *(out / "plans").glob(f"*{UNITS}.json")]:
        earlier.unlink()
    plans = [(out / "plan.json", result.budget, result.solution)]
    named = zip(_told_apart([unit.scale * budget for budget, _ in result.front]), result.front, strict=True)
    plans += [(out / "plans" / f"{name}{unit.name}.json", budget, solution) for name, (budget, solution) in named]
    for path, budget, solution in plans:
        facts = {"budget_s": budget, "latency_predicted_s": solution.latency, "objective": solution.sensitivity}
        joined = {"composed": list(solution.composed)} if solution.composed else {}
        joined |= {"activations": become} if (become := _activations(solution)) else {}
        write_plan(path, solution.layers, **joined, **facts, **about)
    write_json(out / PROFILE, result.profile.to_dict())
    front = [(solution.latency, solution.sensitivity) for _, solution in result.front]
    uniform = {b: (point.latency, point.sensitivity) for b, point in result.uniform.items()}
    solution_point = result.solution.latency, result.solution.sensitivity
    plots.sensitivity_over_latency(out / "pareto.png", front, uniform, solution_point, model, unit)
    if result.competition:
        plots.plans(out / "plans.png", result.competition, UNIFORM, model)
    values, chosen_of = result.measured.values, result.solution.block_sizes
    options = sorted({b for row in values.values() for b in row if b not in _UNCHANGED}, key=lambda b: (b < 0, abs(b)))
    named = {n: {_option(b): row.get(b, math.nan) for b in options} for n, row in values.items()}
    plots.sensitivities(out / "sensitivity.png", named, {n: _option(b) for n, b in chosen_of.items()}, model)
    plots.blocks(out / "blocks.png", result.block_sizes, model)


def summary(result: SearchResult) -> dict[str, Any]:
    """Return the whole result as plain data."""
    solution, measured = result.solution, result.measured
    errors = {name: {b: e.error for b, e in row.items()} for name, row in measured.omegas.items()}
    tables = {"latency": result.latency, "sensitivity": measured.values, "sensitivity_error": errors}
    predicted = {name: {b: asdict(figures) for b, figures in row.items()} for name, row in result.figures.items()}

    def of(table: Mapping[str, Mapping[int, Any]]) -> dict[str, Mapping[int, Any]]:
        return {name: table[name] for name in result.block_sizes}

    return {
        "stage": "search",
        "counted": result.profile.counted,
        "status": solution.status,
        "gap": solution.gap,
        "objective": solution.sensitivity,
        "budget_s": result.budget,
        "latency_predicted_s": solution.latency,
        "predicted": asdict(result.predicted()),
        "uniform": {
            b: {"latency_predicted_s": p.latency, "objective": p.sensitivity} for b, p in result.uniform.items()
        },
        "sweep": [
            {"budget_s": budget, "latency_predicted_s": s.latency, "objective": s.sensitivity}
            for budget, s in result.front
        ],
        "block_sizes": result.block_sizes,
        "composed": list(solution.composed),
        "layers": of(predicted),
        **{name: of(table) for name, table in tables.items()},
        "activations": {
            name: {
                "becomes": kind,
                "options": {
                    KINDS[b]: figures | {what: table[name][b] for what, table in tables.items()}
                    for b, figures in predicted[name].items()
                },
            }
            for name, kind in result.activations.items()
        },
        "candidates": [
            {
                "name": c.name,
                "score": c.score,
                "raced": c.raced,
                "latency_predicted_s": c.solution.latency,
                "block_sizes": c.solution.layers,
            }
            for c in result.candidates
        ],
        "samples": measured.samples,
        "stable": measured.stable,
        "seconds_fisher": result.seconds_fisher,
        "seconds_solve": solution.seconds,
        "ckks": result.ckks,
    }


_UNCHANGED = 1, OPTIONS["own"]
_SEVERAL = 20
"""Least number of layers for which a plan of extremes is reported."""


def _ranked(scores: Iterable[tuple[float | None, str]]) -> dict[str, float]:
    """Return scores by name of a plan, the best first, without plans that have none."""
    scored = ((score, name) for score, name in scores if score is not None)
    return {name: score for score, name in sorted(scored)}


def _warn_of_extremes(candidate: Candidate, latency: Table) -> None:
    """Warn of a plan that did not race and has little between the smallest and the largest block size of each layer."""
    sizes = {name: b for name, b in candidate.solution.layers.items() if len(latency[name]) > 4}
    smallest = sum(b == min(latency[name]) for name, b in sizes.items())
    largest = sum(b == max(latency[name]) for name, b in sizes.items())
    several = len(sizes) >= _SEVERAL and 4 * min(smallest, largest) > len(sizes)
    if candidate.raced is None and several and 2 * (smallest + largest) > len(sizes):
        got = f"{smallest} of {len(sizes)} layers at their smallest size and {largest} at their largest"
        warnings.warn(f"a plan should mix sizes: got {got}; race=40 shows how its network trains", stacklevel=4)


def _option(b: int) -> str:
    """Return a block size, or an activation's replacement, in words."""
    return KINDS.get(b, f"b = {b}")


def _activations(solution: Solution) -> dict[str, str]:
    return {name: KINDS[b] for name, b in solution.block_sizes.items() if b in KINDS}


def _activation_sizes(config: SearchRunConfig, model: nn.Module, image: Tensor) -> dict[str, int]:
    """Return the values of the activations to choose for, none if they are to stay."""
    sizes = activation_sizes(model, image) if config.activations else {}
    if config.activations and not sizes:
        rule, remedy = "a search over activations needs some that run exactly", "leave activations out"
        raise RuleError(rule, got="none in the network", remedy=remedy)
    return sizes


def _ckks(model: nn.Module, data: Examples, config: SearchRunConfig, padded: Collection[str]) -> "CkksFigures":
    from privcirnet.blocksize_search.ckks import ckks_figures  # these load the kernels
    from privcirnet.runs.export import ckks_program

    if not isinstance(data, ImageData):
        rule, remedy = "a search with mode=ckks needs images of integers", "use search.py, or mode=interactive"
        raise RuleError(rule, got=type(data).__name__, remedy=remedy)
    return ckks_figures(ckks_program(config.he, model, data), config.block_sizes, padded)


def _constraints(config: SearchRunConfig, figures: FigureTable, pairs: Sequence[Composable]) -> Constraints:
    limits = {"sent": 1e6 * config.traffic_mb, "memory": 1e6 * config.memory_mb}
    limits |= {"online": config.online_s, "seconds": config.prepared_s}
    return constraints_for(figures, config.pinned, config.equal, limits, pairs)


def _budget(config: SearchRunConfig, latency: Table, counted: bool) -> float:
    """Return the budget of plans.

    Warns:
        UserWarning: it is more than the dense network takes, and nothing else limits plans.
    """
    dense = uniform_latency(latency, min(config.block_sizes))
    limit = config.limit
    if limit.fraction:
        return limit.fraction * dense
    capped = config.traffic_mb or config.memory_mb or config.online_s or config.prepared_s
    if limit.seconds > dense and not capped:
        b = int(limit.seconds) if limit.seconds in config.block_sizes else 4
        requested, takes = (in_words(value, counted) for value in (limit.seconds, dense))
        meant = f"did you mean budget=b{b}?"
        warnings.warn(
            f"a budget of {requested} compresses nothing: the dense network takes {takes}; {meant}", stacklevel=3
        )
    return limit.seconds or uniform_latency(latency, limit.uniform)


def _told_apart(budgets: Sequence[float]) -> list[str]:
    """Return budgets with as many decimals as tell them apart."""
    names: list[str] = []
    for decimals in range(9):
        names = [f"{budget:.{decimals}f}" for budget in budgets]
        if len(set(names)) == len(set(budgets)):
            break
    return names
