"""ENSEI (CVPR 2020) at its own ring degree, n = 2048, beside what it takes to be right and secure.

Three parts, all on one thread, every result checked:

* which outputs of an encrypted layer are wrong under the moduli of its Table 2, and under ours;
* the two convolutions of its Table 4 at n = 2048 with q of 60 bits, which is INSECURE: today's table allows 53 bits
  there, and no room is left to hide what a reply's noise says of the weights. No program, no script and no function of
  the package makes such parameters; this file does, for comparison;
* requests in the NTT domain.

`--store FILE` keeps the second part for papers/results.md, as python reproduce.py store=FILE does with the rest.
"""

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from papers.ensei import moduli as ensei
from papers.reproduce import rows
from papers.reproduce.cells import Cell, tables
from papers.reproduce.ensei import layer_of, request_speedup, run, sums_of
from papers.reproduce.layers import INSECURE_ENSEI_PRIMES
from papers.reproduce.rows import Measured
from privcirnet.cli.console import progress_bar, show, show_rows
from privcirnet.he.bfv.noise import flood_bits
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.system import threads

INSECURE_RING_DEGREE = 2048
_MB = 1e6


def insecure_parameters(t: int) -> Parameters:
    """Return INSECURE parameters, put together behind the back of the check.

    Args:
        t: plain modulus.
    """
    made = object.__new__(Parameters)
    made.__dict__.update(
        ring_degree=INSECURE_RING_DEGREE, coefficient_bits=INSECURE_ENSEI_PRIMES, plain_modulus=t, table="INSECURE"
    )
    return made


def insecure_ensei(conv: Sequence[int], bits: Sequence[int], repetitions: int) -> dict[str, float]:
    """Return latency (s), traffic and upload (MB) and wrong outputs (%) of a layer, INSECURE.

    Args:
        conv: H, W, C, K, R.
        bits: of inputs and of weights.
        repetitions: runs, of which the median counts.
    """
    lengths = layer_of(conv, INSECURE_RING_DEGREE).transform_lengths
    moduli = ensei.equal(sums_of(conv, bits), lengths, INSECURE_RING_DEGREE)
    each = [run(conv, bits, moduli, insecure_parameters(moduli.encryption)) for _ in range(repetitions)]
    wrong, found = each[0]
    return {
        "latency": statistics.median(sum(run.timing) for _, run in each),
        "traffic": (found.bytes_up + found.bytes_down) / _MB,
        "upload": found.bytes_up / _MB,
        "wrong outputs": 100 * wrong,
        "flooding bits": flood_bits(insecure_parameters(moduli.encryption)),
    }


def _shown(values: Mapping[str, float]) -> dict[str, str]:
    return {name: f"{value:.4g}" for name, value in values.items()}


def main() -> None:
    """Run the three parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--store", default="", help="file of measurements, such as that of reproduce.py")
    given = parser.parse_args()
    threads.use(1)
    chosen = [table for table in tables() if table.name.startswith("ensei")]
    found = rows.measure([_only(table.cells, "wrong_outputs", table) for table in chosen], "", None, progress_bar)
    show_rows("wrong outputs, %", [{"moduli": key, **_shown(each.values)} for key, each in found.items()])
    insecure: dict[str, Measured] = {}
    for table in chosen:
        for cell in table.cells:
            if cell.by == "insecure_ensei" and cell.key not in insecure:
                arguments: dict[str, Any] = dict(cell.arguments or {})
                insecure[cell.key] = Measured(
                    insecure_ensei(repetitions=given.repetitions, **arguments), rows.machine()
                )
                show(f"INSECURE: {cell.row}", _shown(insecure[cell.key].values))
    if given.store:
        rows.store(Path(given.store), {**found, **insecure})
    for conv in ([28, 28, 1, 5, 5], [32, 32, 32, 32, 3]):
        show(f"requests in the NTT domain, {conv}", _shown(request_speedup(conv)))


def _only(cells: Sequence[Cell], by: str, table: Any) -> Any:
    from dataclasses import replace

    return replace(table, cells=tuple(cell for cell in cells if cell.by == by))


if __name__ == "__main__":
    main()
