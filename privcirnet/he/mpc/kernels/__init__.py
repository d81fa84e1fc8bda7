"""Kernels of two-party computation on bits."""
