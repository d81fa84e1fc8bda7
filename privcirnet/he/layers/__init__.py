"""Encodings: the slot or coefficient of each value, and the computation of a layer there."""
