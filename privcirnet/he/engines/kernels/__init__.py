"""Compiled loops over residues: what the server's engine (:mod:`engines.kernel`) is made of."""

from pathlib import Path

from privcirnet.compiled.jit import forget_stale

forget_stale(Path(__file__).parent)
