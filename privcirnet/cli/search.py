"""Choose a block size for every layer under a latency budget. `privcirnet search --help`."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from privcirnet import distributed
from privcirnet.artifact.records import write_json
from privcirnet.artifact.run import exclusive
from privcirnet.cli.console import counting, progress_bar, show, show_text
from privcirnet.cli.settings import script
from privcirnet.config import SearchRunConfig
from privcirnet.data import load_for
from privcirnet.he.planning.profile import in_words
from privcirnet.runs import search
from privcirnet.runs.profiles import PROFILE

_WHEN = {"prepared": ", before the image", "online": ", with the image", "total": ", before and with it"}


@script(SearchRunConfig)
@distributed.joined
def main(config: SearchRunConfig) -> None:
    """Measure sensitivity and latency of every layer and block size, then solve the integer program."""
    with exclusive(asdict(config), writes=distributed.rank() == 0):
        started, out = time.perf_counter(), Path(config.out)
        with counting("Decoding images") as progress, distributed.first_goes_first():
            data = load_for(config.data, progress)
        stored = search.search(config, data, progress_bar, show_text)
        if distributed.rank() > 0:
            return
        search.write(stored, out)
        result = stored.result
        files = {"plan": str(out / "plan.json"), "profile": str(out / PROFILE)}
        seconds = {"seconds": time.perf_counter() - started, "config": asdict(config)}
        write_json(out / "summary.json", {**search.summary(result), **files, **seconds})
        show("search: block sizes", _in_words(result, config) | {"saved": files["plan"], "look at": out / "pareto.png"})


def _in_words(result: search.SearchResult, config: SearchRunConfig) -> dict[str, object]:
    solution, measured = result.solution, result.measured
    counted = result.profile.counted
    predicted, budget = in_words(solution.latency, counted), in_words(result.budget, counted)
    steady = {None: "", True: "; more would not change the plan", False: "; the plan still changed at the end"}
    return {
        **result.block_sizes,
        **result.activations,
        "predicted": f"{predicted} of a budget of {budget}{_WHEN[config.objective]}",
        "sensitivity": f"{solution.sensitivity:.4g} ({solution.status}, gap {solution.gap:g})",
        "uniform": ", ".join(
            f"b = {b}: {in_words(p.latency, counted)}, {p.sensitivity:.4g}" for b, p in result.uniform.items()
        ),
        **result.ranking(),
        **(_ckks(result.ckks) if result.ckks else {}),
        "measured": f"{', '.join(config.kinds)}, {measured.samples} images{steady[measured.stable]}",
        "sweep": f"{len(result.front)} plans in {Path(config.out) / 'plans'}",
    }


def _ckks(facts: dict[str, Any]) -> dict[str, str]:
    depth = f"{facts['levels']} levels, {facts['depth_squares']} squares deep, {facts['bootstrappings']}"
    counts = f"{facts['diagonals']} diagonals, {facts['rotations']} rotations"
    took = f"{facts['seconds_layers']:.1f} of layers and {facts['seconds_bootstrapping']:.1f} of bootstrapping"
    return {
        "CKKS": f"n = {facts['ring_degree']}, {depth} bootstrappings; {counts}, "
        f"{facts['bytes_keys_server'] / 1e9:.1f} GB of keys; results right to 2^-{facts['precision_bits']:.1f}",
        "seconds": f"{took}, of a processor; circulant weights run as dense ones, so no block size is faster",
    }
