"""Compiled loops over shares; without Numba their callers in :mod:`he.clear` do the same with numpy."""
