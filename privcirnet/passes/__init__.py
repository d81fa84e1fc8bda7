"""Verbs on whole networks: circulant, fused, quantized."""
