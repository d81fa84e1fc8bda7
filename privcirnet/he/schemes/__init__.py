"""Two schemes over one core. Neither knows the other."""
