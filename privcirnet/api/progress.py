"""Progress bars for programs of others, the same as those of the scripts."""

from privcirnet.pipeline.progress import Bar, silent


def bars(shown: bool) -> Bar:
    """Return what opens progress bars.

    Args:
        shown: whether they are.
    """
    if not shown:
        return silent
    from privcirnet.console import progress_bar  # Hydra's import, which nothing else here needs

    return progress_bar
