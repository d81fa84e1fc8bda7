"""The competition of plans in a search: all are scored, one may be refined, all may race, and scores are kept."""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import nn

from privcirnet import distributed
from privcirnet.artifact.records import read_json, write_json
from privcirnet.blocksize_search.assignment import Solution, Table
from privcirnet.blocksize_search.candidates import UNIFORM, Candidate, Rules, best, refined, uniform_within
from privcirnet.config import SearchRunConfig
from privcirnet.data.dataset import Examples
from privcirnet.runs.progress import ProgressBar
from privcirnet.train.race import Divergence, train_for_
from privcirnet.train.record import Step

RACE = "race.json"
"""File of scores after training, in a search's folder."""


@dataclass(frozen=True)
class Problem:
    """Proposed plans and the rules that they obey.

    Attributes:
        proposed: plans by the kind of sensitivity.
        omegas: sensitivities by their kind.
    """

    proposed: Mapping[str, Solution]
    omegas: Mapping[str, Table]
    rules: Rules

    def candidates(self) -> list[Candidate]:
        """Return the proposed plans."""
        return [Candidate(kind, solution) for kind, solution in self.proposed.items()]

    def omega(self, candidate: Candidate) -> Table:
        """Return the sensitivity by which swaps around a candidate are ordered."""
        return self.omegas.get(candidate.proposed_by) or next(iter(self.omegas.values()))


class Scores:
    """Scores of plans after training, in a file: a search that is killed continues with the next plan.

    Under torchrun the first process reads and writes them.

    Args:
        path: path of the file; None for scores that are not written.
        facts: plain data besides the plan that scores depend on.
    """

    def __init__(self, path: Path | None = None, facts: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._path, self._facts = path, json.loads(json.dumps(dict(facts)))
        self._scores = distributed.from_first(self._read)

    def __call__(self, sizes: Mapping[str, int], score: Callable[[], float]) -> float:
        """Return a plan's score, measured unless it is there."""
        plan = json.dumps(sizes)
        if plan not in self._scores:
            self._scores[plan] = score()
            if self._path and distributed.rank() == 0:
                write_json(self._path, {"facts": self._facts, "scores": self._scores})
        return self._scores[plan]

    def _read(self) -> dict[str, float]:
        if self._path is None or not self._path.is_file():
            return {}
        race = read_json(self._path, "a race", "remove it, and the race begins anew")
        return race["scores"] if race.get("facts") == self._facts else {}


def competed(
    model: nn.Module,
    data: Examples,
    config: SearchRunConfig,
    problem: Problem,
    scores: Scores,
    bar: ProgressBar,
) -> list[Candidate]:
    """Return the proposed plans, one block size everywhere and the refined plan, each once, with their scores.

    Args:
        model: dense network; left as it was.
        scores: scores of the race so far.
    """
    uniform = uniform_within(next(iter(problem.omegas.values())), *problem.rules)
    candidates = problem.candidates() + ([Candidate(UNIFORM, uniform)] if uniform else [])
    candidates = list(
        {tuple(candidate.solution.block_sizes.values()): candidate for candidate in reversed(candidates)}.values()
    )[::-1]
    divergence = Divergence(model, data, pad=config.pad)
    with bar("Plans", len(candidates)) as advance:
        for index, candidate in enumerate(candidates):
            candidates[index] = replace(candidate, score=divergence(candidate.solution.block_sizes))
            advance("")
    if config.refine:
        winner = best(candidates)
        better = _refined(winner, problem, divergence, config.refine, bar)
        candidates += [better] if better is not winner else []
    if not config.race:
        return candidates

    def trained(sizes: Mapping[str, int], after_step: Callable[[Step], None]) -> float:
        return divergence(
            sizes, lambda network: train_for_(config.race, network, data, config.recipe, model, after_step)
        )

    return _raced(candidates, config.race, trained, scores, bar)


def _raced(
    candidates: Sequence[Candidate],
    steps: int,
    trained: Callable[[Mapping[str, int], Callable[[Step], None]], float],
    scores: Scores,
    bar: ProgressBar,
) -> list[Candidate]:
    """Return candidates with their scores after ``steps`` steps.

    Args:
        trained: function that gives the score of a plan after training, and calls back after each step.
    """
    with bar("Race (steps)", steps * len(candidates)) as advance:

        def raced(place: int, candidate: Candidate) -> Candidate:
            sizes, done = candidate.solution.block_sizes, steps * place

            def after_step(step: Step) -> None:
                advance(f"{candidate.name}, loss {step.mean_loss:.3f}", to=done + step.number)

            score = scores(sizes, lambda: trained(sizes, after_step))
            advance(to=done + steps)
            return replace(candidate, raced=score)

        return [raced(place, candidate) for place, candidate in enumerate(candidates)]


def _refined(
    winner: Candidate, problem: Problem, divergence: Divergence, seconds: float, bar: ProgressBar
) -> Candidate:
    """Return a candidate after some seconds of local search; itself if none is better."""
    with bar("Refining", math.ceil(seconds)) as advance:
        started = time.perf_counter()

        def more() -> bool:
            spent = time.perf_counter() - started
            advance(to=min(math.ceil(spent), math.ceil(seconds)))
            return spent < seconds

        return refined(winner, problem.omega(winner), problem.rules, divergence, more)
