"""Leveled BFV: plans and parameters of whole networks. See papers/falcon2020.md."""
