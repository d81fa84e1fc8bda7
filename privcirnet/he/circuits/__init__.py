"""Circuits as data, what computes them in BFV and CKKS, and the cache of encoded weights."""
