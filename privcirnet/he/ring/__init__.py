"""Residues: arithmetic, roots of unity, random numbers, cyclic transforms."""
