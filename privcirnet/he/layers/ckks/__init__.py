"""How real maps lie in slots."""
