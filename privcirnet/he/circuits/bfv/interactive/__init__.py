"""One linear layer between two messages: the kernels, and how they cut its work."""
