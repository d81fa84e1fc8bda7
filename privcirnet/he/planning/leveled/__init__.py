"""Plans and parameters of whole networks in BFV. See docs/leveled.md."""
