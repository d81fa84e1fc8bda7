"""Compiled loops: plaintexts, encryption, decryption, replies."""
