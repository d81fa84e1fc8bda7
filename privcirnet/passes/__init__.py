"""Verbs on whole networks: made polynomial, circulant, fused, quantized, and lowered to integers."""
