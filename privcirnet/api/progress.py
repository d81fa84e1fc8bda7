"""Progress bars for programs of others, the same as those of the scripts."""

from privcirnet.cli.console import progress_bar
from privcirnet.runs.progress import Bar, silent


def bars(shown: bool) -> Bar:
    """Return what opens progress bars.

    Args:
        shown: whether they are.
    """
    return progress_bar if shown else silent
