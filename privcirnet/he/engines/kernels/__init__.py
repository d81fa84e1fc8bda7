"""Compiled loops over residues: what the server's engine (:mod:`engines.kernel`) is made of."""
