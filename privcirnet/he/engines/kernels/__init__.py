"""Compiled loops over residues: what :mod:`engines.kernel` and :mod:`engines.kernel_client` are made of."""
