"""Measurements of this machine: seconds of encrypted operations, and of layers in clear."""
