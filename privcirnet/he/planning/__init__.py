"""Costs, plans of layers, and the choice of encryption parameters."""
