"""The report of a finished chain of runs: terminal tables and one self-contained HTML page.

It reads the ``summary.json`` files that the scripts leave behind and imports none of the code that made them.

``build_page(load_runs(Path("outputs/demo")))`` is the page as text.
"""

from privcirnet.report.page import build_page
from privcirnet.report.runs import Runs, load_runs
from privcirnet.report.terminal import print_tables

__all__ = ["Runs", "build_page", "load_runs", "print_tables"]
