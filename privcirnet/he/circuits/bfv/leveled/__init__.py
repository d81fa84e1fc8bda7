"""A whole network between two messages: interface, engines, modulus switching, noise."""
