"""Compiled: plaintexts, encryption, decryption, replies."""
