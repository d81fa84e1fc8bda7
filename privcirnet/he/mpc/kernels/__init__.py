"""Kernels of two-party computation: on bits, and over shares."""
