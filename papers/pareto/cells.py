"""One cell: its plan or masks, and a network fine-tuned with them from the dense start; any step can be killed.

Cells with the same plan share one run, and jobs that would train it at the same time wait for each other. Layout of a
comparison's folder::

    prepared.json           what all cells share
    cells/<cell>/cell.json  budget, predictions, the run; with plan.json, and masks.safetensors if it is pruned
    runs/<digest>/<seed>/   run directory of train.py
"""

import hashlib
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from papers.pareto.config import Cell, ParetoConfig
from papers.pareto.paid import paid
from papers.pareto.prepare import Prepared, prepare
from papers.pruning.masked import mask_bytes, start_of
from papers.pruning.masks_file import read_masks, write_masks
from papers.pruning.search import PrunedNetwork, Pruning
from privcirnet.artifact.records import read_json, write_json, write_plan
from privcirnet.artifact.run import SUMMARY, locked
from privcirnet.blocksize_search.assignment import FREE, uniform_latency, uniform_sizes
from privcirnet.blocksize_search.candidates import Candidate, Rules, best
from privcirnet.blocksize_search.latency import CostPrediction, figures_of, layer_shapes
from privcirnet.blocksize_search.solve import solve
from privcirnet.cli import train
from privcirnet.config import RecipeConfig, SearchRunConfig, TrainConfig
from privcirnet.config.search import BUDGETS
from privcirnet.data.dataset import ImageData
from privcirnet.errors import RuleError
from privcirnet.nn.materialize import materialize_weights_
from privcirnet.runs.competition import RACE, Problem, Scores, competed
from privcirnet.runs.progress import ProgressBar, silent
from privcirnet.train import stages
from privcirnet.train.network import weighted_layers

CELL, PLAN, MASKS = "cell.json", "plan.json", "masks.safetensors"


def run(config: ParetoConfig, data: ImageData, bar: ProgressBar = silent) -> None:
    """Run all cells that are asked for and not complete.

    Args:
        config: of the comparison.
        data: images with labels.
        bar: opens progress bars.

    Raises:
        RuleError: see :func:`prepare`, and whatever ends a training run.
    """
    prepared = prepare(config, data, bar)
    for cell in config.cells():
        run_cell(config, cell, prepared, data, bar)


def run_cell(config: ParetoConfig, cell: Cell, prepared: Prepared, data: ImageData, bar: ProgressBar = silent) -> None:
    """Plan a cell and fine-tune its network, as far as that is not done.

    A budget that the method cannot meet is written down, and nothing is trained.

    Args:
        prepared: what all cells share.

    Raises:
        RuleError: whatever ends a training run.
    """
    folder = Path(config.out) / "cells" / cell.name
    if not (folder / CELL).is_file():
        write_json(folder / CELL, asdict(cell) | _planned(config, cell, prepared, data, folder, bar))
    found = read_json(folder / CELL, "a cell", "remove its folder")
    if not found["run"]:
        return
    for seed in config.seeds:
        out = Path(config.out) / "runs" / found["run"] / str(seed)
        with locked(out / ".lock"):
            if not (out / SUMMARY).is_file():
                _train(config, data, out, folder / PLAN, seed, bar)


def _train(config: ParetoConfig, data: ImageData, out: Path, plan: Path, seed: int, bar: ProgressBar) -> None:
    started = time.perf_counter()
    teacher = config.init if config.recipe.teacher else ""
    recipe: RecipeConfig = replace(config.recipe, init=config.init, teacher=teacher, plan=str(plan), uniform=0)
    settings = TrainConfig(
        root=config.root, out=str(out), seed=seed, device=config.device, data=config.data, recipe=recipe
    )
    part = _part(config, data)
    masks = {name: torch.from_numpy(mask) for name, mask in read_masks(plan).items()}
    trained = train.train(settings, part, bar, change=start_of(masks) if masks else None)
    if masks:  # the checkpoint of a pruned network is a dense one with zeros
        materialize_weights_(trained.network.model)
    train.write(trained, time.perf_counter() - started)


def _planned(
    config: ParetoConfig, cell: Cell, prepared: Prepared, data: ImageData, folder: Path, bar: ProgressBar
) -> dict[str, Any]:
    """Write a cell's plan; return the facts about it."""
    what = BUDGETS.get(cell.budget_on, "seconds")
    latency = prepared.latency(what)
    budget = uniform_latency(latency, cell.b)
    pruned: PrunedNetwork | None = None
    sizes = uniform_sizes(latency, 1)
    chosen: Candidate | None = None
    try:
        if cell.method == "searched":
            scores = Scores(folder / RACE, {"race": config.race, "recipe": asdict(config.recipe)})
            chosen = _searched(config, prepared, data, (latency, budget, FREE), scores, bar)
            sizes = chosen.solution.block_sizes
        elif cell.method == "pruning":
            pruned = _pruned(config, prepared, data, budget, what)
        elif cell.method == "uniform":
            sizes = uniform_sizes(latency, cell.b)
        elif cell.method in prepared.omegas:
            sizes = solve(prepared.omegas[cell.method], latency, budget).block_sizes
    except RuleError as error:
        return {"budget_s": budget, "run": "", "problem": str(error)}
    about = {"model": prepared.model, "checkpoint": prepared.checkpoint, "budget_s": budget}
    if pruned:
        masks = {name: mask.numpy() for name, mask in pruned.masks.items()}
        write_masks(folder / MASKS, masks)
        about["masks"] = MASKS
    write_plan(folder / PLAN, sizes, **about)
    figures = pruned.figures if pruned else figures_of(prepared.figures, sizes)
    return {
        "budget_s": budget,
        **_facts(figures),
        **({} if pruned else paid(config, prepared, data, sizes)),
        **({"chosen": chosen.name} if chosen else {}),
        "sparsity": pruned.sparsity if pruned else 0.0,
        "run": _digest(sizes, pruned),
        "problem": "",
    }


def _searched(
    config: ParetoConfig, prepared: Prepared, data: ImageData, rules: Rules, scores: Scores, bar: ProgressBar
) -> Candidate:
    omegas = {method: omega for method, omega in prepared.omegas.items() if method != "weights"}
    proposed = {method: solve(omega, rules[0], rules[1]) for method, omega in omegas.items()}
    settings = SearchRunConfig(race=config.race, recipe=config.recipe)
    part, model = _part(config, data), stages.load_network(config.init, data)
    return best(competed(model, part, settings, Problem(proposed, omegas, rules), scores, bar))


def _part(config: ParetoConfig, data: ImageData) -> ImageData:
    return data.part(config.train_images) if config.train_images else data


def _pruned(config: ParetoConfig, prepared: Prepared, data: ImageData, budget: float, what: str) -> PrunedNetwork:
    model = stages.load_network(config.init, data)
    weights = {name: layer.weight.detach() for name, layer in weighted_layers(model).items()}
    shapes = layer_shapes(model, data.real(data.train_images[:1]))
    return Pruning(weights, shapes, prepared.profile, prepared.link, config.scores).to_budget(budget, what)


def _facts(figures: CostPrediction) -> dict[str, float]:
    return {"server_s": figures.server, "all_s": figures.seconds, "bytes": figures.sent}


def _digest(sizes: dict[str, int], pruned: PrunedNetwork | None) -> str:
    """Of everything that tells the network's structure; 16 hexadecimal digits."""
    found = hashlib.sha256(json.dumps(sizes, sort_keys=True).encode())
    if pruned:
        found.update(mask_bytes(dict(sorted(pruned.masks.items()))))
    return found.hexdigest()[:16]
