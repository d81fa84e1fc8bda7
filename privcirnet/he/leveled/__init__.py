"""Leveled inference: the client encrypts an image, goes away, and gets an encrypted answer. See docs/leveled.md."""
