"""Circuits in BFV: of one layer between two messages, or of a whole network."""
