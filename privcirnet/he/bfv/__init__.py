"""BFV: parameters (n, q, t), batching, noise, squares, replies, the client, SEAL's files."""
