"""The integer network as data: operations, bounds, checks, description."""
