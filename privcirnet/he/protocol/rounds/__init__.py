"""Rounds: linear layer, square, product; merged, and of the offline phase."""
