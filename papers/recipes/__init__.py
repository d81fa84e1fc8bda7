"""Ways to train that one experiment needs."""
