"""What all cells share: the profile, predictions of every layer and block size, sensitivities. Made once, then read."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from papers.pareto.config import ParetoConfig
from privcirnet.artifact.records import read_checkpoint, read_json, write_json
from privcirnet.artifact.run import Run, locked
from privcirnet.blocksize_search.assignment import Table
from privcirnet.blocksize_search.latency import CostPrediction, FigureTable, amounts_of, figure_table, layer_shapes
from privcirnet.config import run_file
from privcirnet.data.dataset import ImageData
from privcirnet.errors import RuleError
from privcirnet.he.planning.cost import Objective
from privcirnet.he.planning.network_links import LINKS, NetworkLink
from privcirnet.he.planning.profile import Profile
from privcirnet.runs.profiles import find_profile
from privcirnet.runs.progress import ProgressBar, silent
from privcirnet.train import sensitivities, stages
from privcirnet.train.loop import accuracy

NAME = "prepared.json"
_OF_A_JOB = frozenset({"method", "b", "budget_on", "budgets", "seeds", "draw"})
"""Settings that may differ between the jobs of a comparison."""
_KINDS = {"weights": "weights", "loss_aware": "fisher", "kfac": "kfac", "energy": "energy"}
"""Method -> kind of sensitivity."""


@dataclass(frozen=True)
class Prepared:
    """What all cells share.

    Attributes:
        top1: of the dense network, percent of the held-out images.
        link: network between client and server.
        figures: predictions by layer and block size.
        omegas: sensitivities by method.
    """

    settings: dict[str, Any]
    model: str
    checkpoint: str
    top1: float
    profile: Profile
    link: NetworkLink
    figures: FigureTable
    omegas: Mapping[str, Table]

    def latency(self, what: str) -> dict[str, dict[int, float]]:
        """Return seconds by layer and block size.

        Args:
            what: attribute of :class:`Figures`, "seconds" or "server".
        """
        return amounts_of(self.figures, what)


def prepare(config: ParetoConfig, data: ImageData, bar: ProgressBar = silent) -> Prepared:
    """Return what all cells share, measured if this is the comparison's first job; other jobs wait for it.

    Raises:
        RuleError: the folder holds a comparison with other settings, or the dense network is missing or unsuitable.
    """
    out = Path(config.out)
    with locked(out / ".prepared.lock"):
        if not (out / NAME).is_file():
            write_json(out / NAME, _measured(config, data, bar))
    found = read(out)
    rule, remedy = "a comparison must be continued with its settings", "give the earlier ones, or another out="
    Run(out, asdict(config), _OF_A_JOB).require_same(found.settings, rule, remedy)
    return found


def read(out: Path) -> Prepared:
    """Return what all cells of a comparison share.

    Raises:
        RuleError: nothing was prepared there.
    """
    held = read_json(out / NAME, "a comparison", "run a cell first, or give its folder as out=")
    figures = {n: {int(b): CostPrediction(**f) for b, f in row.items()} for n, row in held["figures"].items()}
    omegas = {k: {n: {int(b): v for b, v in row.items()} for n, row in t.items()} for k, t in held["omegas"].items()}
    profile = Profile(**held["profile"] | {"coefficient_bits": tuple(held["profile"]["coefficient_bits"])})
    link = LINKS[held["settings"]["he"]["link"]]
    facts = held["settings"], held["model"], held["checkpoint"], held["top1"]
    return Prepared(*facts, profile, link, figures, omegas)


def _measured(config: ParetoConfig, data: ImageData, bar: ProgressBar) -> dict[str, Any]:
    held = read_checkpoint(run_file(config.init, stages.CHECKPOINT, "train.py"))
    model = stages.built(held, data).model
    if circulant := [name for name, b in held.block_sizes.items() if b > 1]:
        remedy = "give the run directory of a dense network"
        raise RuleError("a comparison must start from a dense network", got=f"{len(circulant)} layers", remedy=remedy)
    profile = find_profile(config.he, bar=bar)
    shapes = layer_shapes(model, data.real(data.train_images[:1]))
    figures = figure_table(shapes, config.block_sizes, Objective(profile, LINKS[config.he.link]))
    admitted = {name: tuple(row) for name, row in figures.items()}
    with bar("Sensitivity", config.samples) as advance:
        found = sensitivities.measure(
            model,
            data,
            admitted,
            list(_KINDS.values()),
            config.samples,
            config.damping,
            progress=lambda n: advance(to=n),
        )
    return {
        "settings": asdict(config),
        "model": held.model,
        "checkpoint": held.digest(),
        "top1": accuracy(model, data),
        "profile": profile.to_dict(),
        "figures": {name: {b: asdict(figures) for b, figures in row.items()} for name, row in figures.items()},
        "omegas": {method: found[kind].values for method, kind in _KINDS.items()},
    }
