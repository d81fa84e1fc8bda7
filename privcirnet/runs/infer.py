"""Encrypted inference of a program folder, or of a server elsewhere, in the mode of its program."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from privcirnet.artifact import read_ckks
from privcirnet.he.layers.integer import Values
from privcirnet.he.program.signature import PublicKey
from privcirnet.runs.answers import StepProgress, no_progress
from privcirnet.runs.compiled import read_compiled
from privcirnet.runs.evaluation import Evaluation, Mode, run
from privcirnet.runs.interactive import Interactive
from privcirnet.runs.parties import Parties, RunOptions, parties
from privcirnet.runs.preparation import Ahead
from privcirnet.service.client import ServiceClient


def read_mode(folder: Path, mode: str, key: PublicKey | None = None) -> Mode:
    """Return the program of a folder; with a key, one that it signed.

    Args:
        mode: "interactive" or "ckks".

    Raises:
        RuleError: missing, damaged, foreign, of the other mode, or not signed with the key.
    """
    if mode == "ckks":
        return _ckks(read_ckks(folder, key))
    compiled = read_compiled(folder, key)
    return Interactive(compiled.integer, compiled.spectra, compiled.profile)


def _ckks(program: Any = None) -> Mode:
    from privcirnet.runs.ckks import Ckks  # it loads the kernels

    return Ckks(program)


MODES: dict[str, Callable[[Any], Mode]] = {
    "interactive": Interactive,
    "ckks": lambda _: _ckks(),
}
"""Modes of a client alone, from its program's public description, by :attr:`Known.mode`."""


def infer(
    remote: ServiceClient,
    images: Sequence[Values] | Values,
    how: RunOptions | None = None,
    progress: StepProgress = no_progress,
    *,
    keep: bool = False,
) -> Evaluation:
    """Return the evaluation of a server on images.

    Args:
        images: integers of the data set, (N, C, H, W).
        keep: whether prepared inferences that are left over will be found again; otherwise none is left over.

    Raises:
        RuleError: there is no image, or one that does not fit the program; the server refuses or is gone.
    """
    return run(
        MODES[remote.party.known.mode](remote.party.known),
        client_of(remote, how or RunOptions(), keep),
        images,
        progress,
    )


def client_of(remote: ServiceClient, how: RunOptions, keep: bool = False) -> Parties:
    """Return a client whose server is elsewhere, ready for images; ``keep``: see :func:`infer`."""
    ahead = Ahead(how.prepare, remote.store, keep, remote.reopen, how.pause_s)
    arguments = remote.party, remote, None, remote.seconds, remote.bytes_keys, ahead, how
    return parties(*arguments, persist=remote.persist)
