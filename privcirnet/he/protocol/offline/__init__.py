"""Correlated randomness: made offline, kept, used once."""
