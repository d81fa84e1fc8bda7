"""Loading of saved programs."""

from dataclasses import replace
from pathlib import Path

from privcirnet.api.progress import bars
from privcirnet.config.checks import check
from privcirnet.runs.compiled import CompiledProgram, read_compiled


def load(folder: str | Path, *, progress: bool = True) -> CompiledProgram:
    """Return a program that :meth:`CompiledProgram.save` or export.py wrote.

    Args:
        folder: folder of the program.
        progress: whether its sessions show progress bars.

    Raises:
        RuleError: missing, damaged or foreign.
    """
    remedy = "check the path, or write a program there: program.save(folder)"
    check(Path(folder).exists(), "a program's folder must exist", folder, remedy)
    return replace(read_compiled(Path(folder)), bar=bars(progress))
