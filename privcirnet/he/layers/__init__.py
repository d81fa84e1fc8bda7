"""Encodings: which value sits in which slot or coefficient, and what a layer computes there."""
