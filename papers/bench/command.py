"""bench.py with the papers' own plans, layout=published and against=published, and with encodings of polynomials."""

from benchmarks.bench import runs
from benchmarks.bench.command import main
from papers.coefficients import layer
from papers.layouts.named import plan_published
from privcirnet.he.planning.planner import LAYOUTS, NAMES

__all__ = ["main"]

LAYOUTS["published"] = plan_published
NAMES.update(layer.NAMES)
runs.BASELINES["Cheetah"] = "cheetah"
