"""Encrypted inference: the mathematics, the encodings, the engines and the two-party protocol. No torch in here."""
