"""A folder that only its owner can read and write: of encoded weights, of clients' keys."""

from pathlib import Path

from privcirnet.errors import RuleError


def private_folder(folder: Path) -> None:
    """Make a folder that is its owner's alone, or check that it is.

    An existing folder is not changed: it may be somebody else's, or everybody's.

    Args:
        folder: to make, with its parents, or to check.

    Raises:
        RuleError: others can read or write there.
        OSError: it cannot be made.
    """
    if not folder.is_dir():
        folder.mkdir(parents=True, mode=0o700)
    mode = folder.stat().st_mode & 0o777
    if mode & 0o077:
        rule, remedy = "a folder with weights or keys must be its owner's alone", f"chmod 700 {folder}, or name another"
        raise RuleError(rule, got=f"{folder} with mode {mode:o}", remedy=remedy)
