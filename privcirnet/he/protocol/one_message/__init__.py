"""CKKS between two parties: one request and one answer for an image."""
