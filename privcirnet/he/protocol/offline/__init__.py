"""Correlated randomness: made ahead, kept, used once; sizes of messages."""
