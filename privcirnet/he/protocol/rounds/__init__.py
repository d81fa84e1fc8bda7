"""Rounds: linear layer, square, product, client-aided; merged, and done ahead of an image."""
