"""A folder that only its owner can read and write: of encoded weights, of clients' keys."""

import os
from pathlib import Path

from privcirnet.errors import RuleError


def private_folder(folder: Path) -> None:
    """Make a folder that is its owner's alone, or check that it is.

    An existing folder is not changed: it may be somebody else's, or everybody's.
    """
    if not folder.is_dir():
        folder.mkdir(parents=True, mode=0o700)
    status = folder.stat()
    owner, mode = status.st_uid, status.st_mode & 0o777
    if owner != os.geteuid():
        rule, remedy = "a folder with weights or keys must be this user's own", "run as its owner, or name another"
        raise RuleError(rule, got=f"{folder} of user {owner}, for user {os.geteuid()}", remedy=remedy)
    if mode & 0o077:
        rule, remedy = "a folder with weights or keys must be its owner's alone", f"chmod 700 {folder}, or name another"
        raise RuleError(rule, got=f"{folder} with mode {mode:o}", remedy=remedy)
