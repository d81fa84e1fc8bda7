"""Structured pruning, the baseline: from scores of weights to a network within a budget."""
