"""Compiled loops over shares, for their callers in :mod:`he.clear`."""
