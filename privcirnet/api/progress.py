"""Progress bars for other programs, equal to those of the scripts."""

from privcirnet.cli.console import progress_bar
from privcirnet.runs.progress import Bar, silent


def bars(visible: bool) -> Bar:
    """Return the function that opens progress bars.

    Args:
        visible: whether they are shown.
    """
    return progress_bar if visible else silent
