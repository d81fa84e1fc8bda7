"""Rounds: linear layer, square, product, client-aided; merged, and of the offline phase."""
