"""``python -m papers.pareto``: the settings of an experiment may come first, by its name."""

import sys

from papers.pareto.command import expanded, main
from privcirnet.cli.console import readable_errors

with readable_errors():
    sys.argv[1:] = expanded(sys.argv[1:])
main()
