"""One encrypted layer: counts, bytes, seconds, and the exact result checked. `python bench.py --help`."""

import statistics
from dataclasses import asdict
from pathlib import Path

from privcirnet.artifact import write_json
from privcirnet.cli import find_profile, progress_bar, script, show
from privcirnet.config import BenchConfig
from privcirnet.he.benchmark import Timing, bench_layer
from privcirnet.he.cost import LINKS, cheapest_layer, linear_cost, paper_layer
from privcirnet.he.layout import LinearShape


@script(BenchConfig)
def main(config: BenchConfig) -> None:
    """Plan, run, check, report."""
    shape, he = _shape(config), config.he
    profile = find_profile(he)
    if config.plan == "paper":
        layer = paper_layer(shape, config.block_size, he.ring_degree)
    else:
        layer = cheapest_layer(shape, config.block_size, profile, LINKS[he.link])
    with progress_bar(f"{config.layer} {config.dims}", config.repetitions) as advance:
        result = bench_layer(
            layer, config.engine, config.plain_bits, tuple(he.coefficient_bits), config.repetitions, advance
        )
    cost, plan = linear_cost(layer, profile, LINKS["local"]), layer.plan
    summary = {
        "stage": "bench",
        "layer": config.layer,
        "dims": list(config.dims),
        "block_size": config.block_size,
        "encoding": config.encoding,
        "engine": config.engine,
        "plan": config.plan,
        "rotations": result.rotations,
        "pmults": result.pmults,
        "rotations_planned": plan.rotations,
        "pmults_planned": plan.pmults,
        "ciphertexts_up": plan.ciphertexts_in,
        "ciphertexts_down": plan.ciphertexts_out,
        "bytes_up": result.bytes_up,
        "bytes_down": result.bytes_down,
        "seconds": {part: statistics.median(getattr(t, part) for t in result.timings) for part in Timing._fields},
        "seconds_predicted": {part: getattr(cost, part) for part in Timing._fields},
        "max_abs_error": result.max_abs_error,
        "config": asdict(config),
    }
    write_json(Path(config.out) / "summary.json", summary)
    seconds = ", ".join(f"{part} {1e3 * s:.1f} ms" for part, s in summary["seconds"].items())
    show(
        f"bench: {config.layer} {config.dims}, b = {config.block_size}, {config.encoding}, {config.engine}",
        {
            "operations": f"{result.rotations} HE-Rot, {result.pmults} HE-Pmult",
            "messages": f"{plan.ciphertexts_in} ciphertexts up ({result.bytes_up:,} bytes), "
            f"{plan.ciphertexts_out} down ({result.bytes_down:,} bytes)",
            "seconds": seconds,
            "error": f"{result.max_abs_error} (exact)" if result.max_abs_error == 0 else result.max_abs_error,
            "saved": Path(config.out) / "summary.json",
        },
    )


def _shape(config: BenchConfig) -> LinearShape:
    if config.layer == "gemm":
        return LinearShape.gemm(*config.dims)
    height, width, channels, maps, kernel = config.dims
    return LinearShape(height, width, channels, maps, kernel, padding=(kernel - 1) // 2)


if __name__ == "__main__":
    main()
