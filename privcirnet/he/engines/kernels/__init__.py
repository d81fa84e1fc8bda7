"""Compiled loops over residues: what the compiled engines are made of (:mod:`engines.kernel`, :mod:`engines.kernel_client`)."""

from pathlib import Path

from privcirnet.compiled.jit import forget_stale

forget_stale(Path(__file__).parent)
