"""A party's computation on its own share, in clear and compiled, without a message."""
