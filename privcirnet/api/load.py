"""Programs that were saved."""

from dataclasses import replace
from pathlib import Path

from privcirnet.api.progress import bars
from privcirnet.runs.compiled import CompiledProgram, read_compiled


def load(folder: str | Path, *, progress: bool = True) -> CompiledProgram:
    """Return a program that :meth:`CompiledProgram.save` or export.py wrote.

    Args:
        folder: where it is.
        progress: whether its sessions show progress bars.

    Raises:
        RuleError: missing, damaged or foreign.
    """
    return replace(read_compiled(Path(folder)), bar=bars(progress))
