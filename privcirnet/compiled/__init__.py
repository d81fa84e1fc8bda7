"""Compiled loops: how kernels are compiled, and the passes over values that training makes most often."""

from pathlib import Path

from privcirnet.compiled.jit import forget_stale

forget_stale(Path(__file__).parent)
