"""What computes on ciphertexts: one interface, three engines."""
