"""NeuJeans' encoding of convolutions in CKKS, and what it is compared with."""
