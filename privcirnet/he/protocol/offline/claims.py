"""Claims on prepared work, outside the folder that it lies in: a folder that is set back brings none of them back.

A claim is an empty file, named after its prepared work and made after it. It is removed, and the disk has confirmed
that, before the prepared work is read. So each is of no use without the other, whichever of them was restored from a
backup, copied or moved. Both together can be set back, as by the snapshot of a machine: that is not noticed.
"""

import os
from contextlib import suppress
from pathlib import Path

from privcirnet.errors import RuleError
from privcirnet.he.protocol.offline.store_files import Label, saying, unlinked
from privcirnet.he.system.files import private_folder, to_disk


def usual_place() -> Path:
    """Return the folder of all claims of this user: in $XDG_STATE_HOME, or in ~/.local/state.

    Raises:
        RuleError: the user has no home.
    """
    try:
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    except RuntimeError as problem:
        rule, remedy = "claims on prepared work must have a folder", "name one in prepared_claims="
        raise RuleError(rule, got=problem, remedy=remedy) from None
    return state / "privcirnet" / "prepared"


class Claims:
    """The claims on what lies in one folder.

    Args:
        place: folder of the claims of all folders.
        folder: folder of the prepared work.
        owner: the folder's 32 random bytes, by which it finds its claims.

    Raises:
        RuleError: the claims would be set back with the folder, others can read them, or they cannot be written.
    """

    def __init__(self, place: Path, folder: Path, owner: bytes) -> None:
        if place.resolve().is_relative_to(folder.resolve()):
            rule, remedy = "claims must lie outside the folder of prepared work", "name another prepared_claims="
            raise RuleError(rule, got=f"{place} in {folder}", remedy=remedy)
        self._folder = place / owner.hex()
        with saying(self._folder):
            private_folder(self._folder)

    def __str__(self) -> str:
        return str(self._folder)

    def close(self) -> None:
        """Remove the folder of the claims, if there are none."""
        with suppress(OSError):
            self._folder.rmdir()

    def keep(self, labels: set[Label]) -> set[Label]:
        """Return what has a claim, and remove the claims on everything else."""
        names = {label.file_name for label in labels}
        with saying(self._folder):
            claimed = {path.name for path in self._folder.iterdir()}
            for name in claimed - names:
                (self._folder / name).unlink()
        return {label for label in labels if label.file_name in claimed}

    def add(self, label: Label) -> None:
        """Make a claim. It is on the disk when this returns, and not there if it raises.

        Raises:
            RuleError: there is one, the disk is full, or cannot be written.
        """
        path = self._folder / label.file_name
        with saying(path):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            try:
                to_disk(self._folder)
            except BaseException:
                path.unlink(missing_ok=True)
                raise

    def remove(self, label: Label) -> bool:
        """Return whether there was a claim; there is none any more, and the disk knows.

        Raises:
            RuleError: it cannot be removed.
        """
        return unlinked(self._folder / label.file_name)
