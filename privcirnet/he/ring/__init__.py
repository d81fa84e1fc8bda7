"""Residues modulo primes: arithmetic, batching, random numbers, threads."""
