"""Networks as data. The integer network: operations, bounds, checks, description; those of one round: exact, real."""
