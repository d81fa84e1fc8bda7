"""Residues modulo primes: arithmetic, roots of unity, batching, random numbers, threads."""
