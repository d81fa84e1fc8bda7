"""Compiled loops over residues: what :mod:`engines.kernel` and :mod:`engines.kernel_client` are made of."""

from pathlib import Path

from privcirnet.compiled.jit import forget_stale

forget_stale(Path(__file__).parent)
