"""Encrypted inference: rings, schemes, circuits, encodings, plans and the two-party protocol. No torch in here."""
