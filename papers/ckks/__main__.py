"""``python -m papers.ckks``: a convolution fused with bootstrapping, timed beside the two in a row; 6 GB."""

import argparse

from papers.ckks.fused_seconds import fused_facts, fused_runs, run_fused
from privcirnet.cli.console import progress_bar, readable_errors, show

parser = argparse.ArgumentParser("papers.ckks", description="A convolution fused with bootstrapping, n = 65536.")
parser.add_argument("--repetitions", type=int, default=3, help="timed runs of each way")

with readable_errors():
    given = parser.parse_args()
    with progress_bar("runs", fused_runs(given.repetitions)) as advance:
        found = run_fused(given.repetitions, advance)
    show("a convolution and bootstrapping at n = 65536", fused_facts(found))
