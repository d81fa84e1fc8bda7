"""Circuits as data, whatever computes them, and the cache of encoded weights."""
