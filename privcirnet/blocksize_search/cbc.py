"""CBC, the solver that comes with PuLP, run in a folder of its own.

PuLP writes its files into the folder for temporary ones, whose name CBC reads from a line that it takes apart at spaces
and percent signs, and leaves them there if the solver fails or is interrupted.
"""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pulp

from privcirnet.errors import RuleError

_PROGRAMME, _SOLUTION = "programme.mps", "solution.txt"
OTHER = "pip install privcirnet[highs] and use solver=highs"


class Cbc(pulp.COIN_CMD):
    """CBC with exact gaps and no output; options are as on its command line, without the first dash."""

    def __init__(self, options: list[str]) -> None:
        super().__init__(path=pulp.PULP_CBC_CMD.pulp_cbc_path, msg=False, gapRel=0, options=options)

    def actualSolve(self, lp: pulp.LpProblem, **settings: Any) -> int:
        """Return PuLP's number for the outcome of a programme.

        Raises:
            RuleError: no folder for temporary files can be written, or CBC cannot be started.
            PulpSolverError: CBC ended without an answer.
        """
        try:
            with TemporaryDirectory(prefix="privcirnet-") as folder:
                return self._solve_in(Path(folder), lp)
        except OSError as error:
            rule, remedy = "the solver's files must have room", "set TMPDIR to a folder that can be written"
            raise RuleError(rule, got=str(error), remedy=remedy) from None

    def _solve_in(self, folder: Path, lp: pulp.LpProblem) -> int:
        names = lp.writeMPS(str(folder / _PROGRAMME), rename=1)[:3]
        options = [word for option in [*self.options, *self.getOptions()] for word in f"-{option}".split()]
        line = [self.path, _PROGRAMME, *options, "-solve", "-printingOptions", "all", "-solution", _SOLUTION]
        try:
            done = subprocess.run(line, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        except OSError as error:
            got, remedy = f"{self.path}: {error.strerror}", f"pip install --force-reinstall pulp, or {OTHER}"
            raise RuleError("the solver must be a program of this machine", got=got, remedy=remedy) from None
        if done.returncode or not (folder / _SOLUTION).exists():
            message = " ".join(
                [f"CBC ended with status {done.returncode}", *done.stderr.decode(errors="replace").splitlines()[-1:]]
            )
            raise pulp.PulpSolverError(message)
        status, values, *_, solution_status = self.readsol_MPS(str(folder / _SOLUTION), lp, *names)
        lp.assignVarsVals(values)
        lp.assignStatus(status, solution_status)
        return status
