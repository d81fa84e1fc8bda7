"""CKKS on the kernels, and NeuJeans' encoding in it: approximate numbers, no client in the loop. See docs/ckks.md."""
