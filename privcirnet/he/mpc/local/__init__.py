"""What a party computes on its own share, in clear and compiled, without a message."""
