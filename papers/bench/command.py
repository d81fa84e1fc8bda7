"""bench.py with one layout more: layout=published, against=published are the papers' own plans."""

from benchmarks.bench.command import main
from papers.layouts.named import plan_published
from privcirnet.he.planning.named import LAYOUTS

__all__ = ["main"]

LAYOUTS["published"] = plan_published
