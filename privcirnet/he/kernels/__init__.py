"""Compiled loops over residues: what the server's engine (:mod:`privcirnet.he.kernel`) is made of."""
