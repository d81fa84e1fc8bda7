"""Leveled BFV: a program, its public description, both ends of a request, its circuit in clear."""
