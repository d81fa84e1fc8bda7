"""A whole network between two messages: the kernels, modulus switching, double hoisting, noise."""
