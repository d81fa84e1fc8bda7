"""Leveled BFV: plans and parameters of whole networks. See docs/leveled.md."""
