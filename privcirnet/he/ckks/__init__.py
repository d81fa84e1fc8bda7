"""CKKS: embedding, scales, client, server, ModRaise."""
