"""Compiled loops over residues: negacyclic NTT, base conversion, products, sampling."""
