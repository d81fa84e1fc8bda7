"""Load on a running server, from many clients: how much it carries."""
