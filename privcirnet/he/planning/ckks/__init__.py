"""CKKS: the bootstrappings of a real network, its circuit and its cost."""
