"""Compiled loops: how kernels are compiled, and the passes over values that training makes most often."""
