"""Compiled loops over shares; without Numba their callers in :mod:`he.clear` do the same with numpy."""

from pathlib import Path

from privcirnet.compiled.jit import forget_stale
from privcirnet.he.engines import kernels

forget_stale(Path(__file__).parent, Path(kernels.__file__).parent)
